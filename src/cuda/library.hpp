// Shared libraries that are opened at first use and stay loaded until the process ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/environment.hpp"

namespace kiln::cuda {

/// A library that Kiln calls by a table of functions: where it is, and what its errors say.
struct LibrarySource {
  ErrorKind kind;        // of its errors
  const char* name;      // "NVRTC"
  const char* hidden;    // the error where its path is "none"
  const char* unopened;  // the error where none of the candidates loads, which follow it
  const char* too_old;   // what an error that it lacks a function ends with
  std::vector<std::string> (*candidates)();
};

class Library {
 public:
  /// Opens the first of `candidates` that loads: paths, or names that the loader searches for. Appends the loader's
  /// reason for each failure to `tried`, one line each. Returns nothing when none loads.
  static std::optional<Library> open(std::span<const std::string> candidates, std::string& tried);
  /// Opens `path`, or the first of the candidates where it is empty. Throws Error(source.kind).
  static Library open(const LibrarySource& source, const std::string& path);

  /// Returns null where the library does not export `symbol`.
  template <typename Function>
  [[nodiscard]] Function function(const char* symbol) const {
    return reinterpret_cast<Function>(address(symbol));
  }
  /// Sets `found` as function() does. Throws Error(source.kind) where that is null and required.
  template <typename Function>
  void resolve(const LibrarySource& source, const char* symbol, Function& found, bool is_required = true) const {
    found = function<Function>(symbol);
    if (found == nullptr && is_required) refuse(source, std::string("lacks ") + symbol + source.too_old);
  }
  /// Throws Error(source.kind): "NVRTC at PATH " and `what`.
  [[noreturn]] void refuse(const LibrarySource& source, const std::string& what) const;
  [[nodiscard]] std::string path()
      const;  // as loaded; in full if that is a file, since others open it from other directories
  /// Returns the ELF build id as hexadecimal digits, or "size-N", N the file's bytes, for a library that has none.
  [[nodiscard]] std::string build_id() const;

 private:
  explicit Library(void* handle) noexcept : handle_(handle) {}
  [[nodiscard]] void* address(const char* symbol) const;
  void* handle_;
};

using manifest::environment;

/// Returns why a failure, told by `text`, may pass: a shortage of descriptors or memory, with its limit. An empty
/// string where it is for good.
std::string passing_shortage(std::string_view text);

/// Opens a library by Table::open(PATH), at first use: the path that was chosen, else the value of `variable`. Keeps
/// the table, or the error, which get() throws each time. After a shortage of descriptors or memory, or where PATH is
/// another one now, it tries again. Thread-safe.
template <typename Table>
class OpenedOnce {
 public:
  explicit OpenedOnce(const char* variable) noexcept : variable_(variable) {}
  const Table& get() {
    if (const Table* table = table_.load(std::memory_order_acquire)) return *table;
    return open();
  }
  const Table* find() noexcept {
    try {
      return &get();
    } catch (...) {
      return nullptr;
    }
  }
  /// Takes precedence over the variable, and over what could not be opened so far. Returns false, and changes nothing,
  /// where a table is open.
  bool choose(std::string path) {
    const std::lock_guard lock(mutex_);
    if (made_) return false;
    chosen_ = std::move(path);
    failure_ = nullptr;
    return true;
  }
  /// Has the variable decide again, where what was chosen could not be opened, or names no file.
  void forget_failed_choice() {
    const std::lock_guard lock(mutex_);
    std::error_code unknown;
    const bool is_missing = chosen_.find('/') != std::string::npos && !std::filesystem::exists(chosen_, unknown);
    if (is_missing || (failure_ && path_failed_ == chosen_)) chosen_.clear();
  }

 private:
  const Table& open() {
    const std::lock_guard lock(mutex_);
    if (made_) return *made_;
    const std::string path = chosen_.empty() ? environment(variable_) : chosen_;
    if (failure_ && path == path_failed_) std::rethrow_exception(failure_);
    try {
      made_.emplace(Table::open(path));
    } catch (const Error& error) {
      const std::string shortage = passing_shortage(error.what());
      if (!shortage.empty()) throw Error(error.kind(), std::string(error.what()) + "\n" + shortage);
      failure_ = std::current_exception();
      path_failed_ = path;
      throw;
    }
    table_.store(&*made_, std::memory_order_release);
    return *made_;
  }

  const char* variable_;
  std::atomic<const Table*> table_{nullptr};
  std::mutex mutex_;                  // guards the members below
  std::string chosen_, path_failed_;  // of `failure_`
  std::optional<Table> made_;
  std::exception_ptr failure_;
};

/// The table that a source's get() and find() share. It is never destroyed: what uses it may live until the process
/// ends. Internal linkage keeps it apart from that of another copy of Kiln in the process.
template <typename Table>
static OpenedOnce<Table>& opened(const char* variable) noexcept {
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): no memory for a table: the process cannot go on
  static auto& once = *new OpenedOnce<Table>(variable);
  return once;
}

/// Returns "2.28.9" for 22809.
std::string version_text(std::size_t version);

}  // namespace kiln::cuda
