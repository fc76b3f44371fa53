// Shared libraries that are opened at first use and stay loaded until the process ends.
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <string>

namespace kiln::cuda {

class Library {
 public:
  /// Opens the first of `candidates` that loads: paths, or names that the loader searches for. Appends the loader's
  /// reason for each failure to `tried`, one line each. Returns nothing when none loads.
  static std::optional<Library> open(std::span<const std::string> candidates, std::string& tried);

  /// Returns null when the library does not export `symbol`.
  template <typename Function>
  [[nodiscard]] Function function(const char* symbol) const {
    return reinterpret_cast<Function>(address(symbol));
  }
  [[nodiscard]] std::string path() const;  // as loaded
  /// Returns the ELF build id as hexadecimal digits, or "size-N", N the file's bytes, for a library that has none.
  [[nodiscard]] std::string build_id() const;

 private:
  explicit Library(void* handle) noexcept : handle_(handle) {}
  [[nodiscard]] void* address(const char* symbol) const;
  void* handle_;
};

/// Returns the value of an environment variable, empty when it is unset.
std::string environment(const char* name);

/// Calls Table::open(value of `variable`) once and keeps the table, or the error, which get() throws each time.
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
