#include "c/status.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace kiln::c {
namespace {

/// Without a destructor, so that no thread's end calls into a library that was closed.
thread_local std::array<char, 8192> last_error{};

constexpr std::array status_names = {
    "ok",          "bad_input", "bad_manifest",   "bad_expression", "no_driver",     "no_device",  "no_nvrtc",
    "no_cublaslt", "no_nccl",   "compile_failed", "driver_failed",  "out_of_memory", "bad_file",   "no_permission",
    "io",          "not_tuned", "capture",        "wrong_result",   "interrupted",   "team_failed"};

constexpr kiln_status status_of(ErrorKind kind) noexcept { return static_cast<kiln_status>(kind) + 1; }
static_assert(status_of(ErrorKind::bad_input) == KILN_BAD_INPUT && status_of(ErrorKind::no_nvrtc) == KILN_NO_NVRTC &&
              status_of(ErrorKind::io) == KILN_IO && status_of(ErrorKind::team_failed) == KILN_TEAM_FAILED &&
              status_names.size() == KILN_TEAM_FAILED + 1);

void keep(std::string_view sentence) noexcept {
  const std::size_t length = std::min(sentence.size(), last_error.size() - 1);
  std::memcpy(last_error.data(), sentence.data(), length);
  last_error[length] = '\0';
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
  throw Error(ErrorKind::bad_input,
              fmt::format("the size of {} is {}, expected {}; initialise it with its _INIT macro, and compile with the "
                          "header of this library, version {}",
                          what, size, known, KILN_VERSION_STRING));
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
  const auto& names = kiln::c::status_names;
  return status >= 0 && static_cast<std::size_t>(status) < names.size() ? names[static_cast<std::size_t>(status)]
                                                                        : "unknown";
}

const char* kiln_last_error() { return kiln::c::last_error.data(); }

const char* kiln_version() { return KILN_VERSION_STRING; }

void kiln_free_text(char* text) { std::free(text); }
