#include "c/status.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace kiln::c {
namespace {

constexpr std::size_t most_bytes = 8192;  // of a sentence, with its zero

/// A block is a thread's own from its first error on, and libc frees it when the thread ends: so no thread's end calls
/// into a library that was closed. It is no thread-local array, since a process has under 2 KB of thread-local storage
/// for all libraries that it loads later.
thread_local char* block = nullptr;
thread_local const char* last_error = "";

class FreedByThreads {
 public:
  FreedByThreads() noexcept : is_made_(pthread_key_create(&key_, &std::free) == 0) {}
  ~FreedByThreads() {
    if (is_made_) pthread_key_delete(key_);
  }
  FreedByThreads(const FreedByThreads&) = delete;
  FreedByThreads& operator=(const FreedByThreads&) = delete;
  void hold(char* bytes) const noexcept {
    if (is_made_) pthread_setspecific(key_, bytes);
  }

 private:
  pthread_key_t key_{};
  bool is_made_;
};
const FreedByThreads blocks;  // NOLINT(clang-diagnostic-exit-time-destructors): before the library is unloaded

constexpr std::array status_names = {
    "ok",          "bad_input", "bad_manifest",   "bad_expression", "no_driver",     "no_device",  "no_nvrtc",
    "no_cublaslt", "no_nccl",   "compile_failed", "driver_failed",  "out_of_memory", "bad_file",   "no_permission",
    "io",          "not_tuned", "capture",        "wrong_result",   "interrupted",   "team_failed"};

constexpr kiln_status status_of(ErrorKind kind) noexcept { return static_cast<kiln_status>(kind) + 1; }
static_assert(status_of(ErrorKind::bad_input) == KILN_BAD_INPUT && status_of(ErrorKind::no_nvrtc) == KILN_NO_NVRTC &&
              status_of(ErrorKind::io) == KILN_IO && status_of(ErrorKind::team_failed) == KILN_TEAM_FAILED &&
              status_names.size() == KILN_TEAM_FAILED + 1);

void keep(std::string_view sentence) noexcept {
  if (block == nullptr) {
    block = static_cast<char*>(std::malloc(most_bytes));
    if (block != nullptr) blocks.hold(block);
  }
  if (block == nullptr) {
    last_error = "host memory is exhausted";
    return;
  }
  const std::size_t length = std::min(sentence.size(), most_bytes - 1);
  std::memcpy(block, sentence.data(), length);
  block[length] = '\0';
  last_error = block;
}

}  // namespace

kiln_status failed(ErrorKind kind, std::string_view sentence) noexcept {
  keep(sentence);
  return status_of(kind);
}

kiln_status failed() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return failed(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(ErrorKind::out_of_memory, "host memory is exhausted");
  } catch (const std::exception& error) {
    keep(error.what());
  } catch (...) {
    keep("an exception of no known type");
  }
  return KILN_INTERNAL;
}

void refuse_null(const char* what) { throw Error(ErrorKind::bad_input, fmt::format("{} is null", what)); }

void refuse_size(const char* what, std::size_t size, std::size_t known) {
  const bool has_function = std::string_view(what) == "kiln_options";
  throw Error(
      ErrorKind::bad_input,
      fmt::format("the size of {} is {}, expected {}; initialise it with {}, and compile with the header of this "
                  "library, version {}",
                  what, size, known, has_function ? "kiln_options_init()" : "its _INIT macro", KILN_VERSION_STRING));
}

char* text_of(std::string_view text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace kiln::c

const char* kiln_status_name(kiln_status status) {
  if (status == KILN_INTERNAL) return "internal";
  if (status == KILN_NOT_READY) return "not_ready";
  const auto& names = kiln::c::status_names;
  return status >= 0 && static_cast<std::size_t>(status) < names.size() ? names[static_cast<std::size_t>(status)]
                                                                        : "unknown";
}

const char* kiln_last_error() { return kiln::c::last_error; }

const char* kiln_version() { return KILN_VERSION_STRING; }

void kiln_free_text(char* text) { std::free(text); }
