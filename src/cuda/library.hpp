// A shared library that is opened at first use and stays loaded for the life of the process.
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <string>

namespace kiln::cuda {

class Library {
 public:
  /// The first of `candidates` (paths, or names for the loader's own search) that loads. For each that does not, the
  /// loader's reason is appended to `tried`, one line each.
  static std::optional<Library> open(std::span<const std::string> candidates, std::string& tried);

  /// Null when the library does not export it.
  template <typename Function>
  [[nodiscard]] Function function(const char* symbol) const {
    return reinterpret_cast<Function>(address(symbol));
  }
  /// Where it was loaded from.
  [[nodiscard]] std::string path() const;
  /// The ELF build id as hexadecimal digits, which names these very bytes; "size-N" for a library that has none.
  [[nodiscard]] std::string build_id() const;

 private:
  explicit Library(void* handle) noexcept : handle_(handle) {}
  [[nodiscard]] void* address(const char* symbol) const;
  void* handle_;
};

/// The value of an environment variable, empty when unset.
std::string environment(const char* name);

/// The outcome of one Table::open(value of `variable`), kept: the table, or the error that every later ask throws again.
template <typename Table>
class OpenedOnce {
 public:
  explicit OpenedOnce(const char* variable) noexcept {
    try {
      table_ = Table::open(environment(variable));
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  const Table& get() const {
    if (failure_) std::rethrow_exception(failure_);
    return *table_;
  }
  const Table* find() const noexcept { return table_ ? &*table_ : nullptr; }

 private:
  std::optional<Table> table_;
  std::exception_ptr failure_;
};

}  // namespace kiln::cuda
