// From exceptions to kiln_status and kiln_last_error(), and from C's arguments to what they must be.
#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "kiln/error.hpp"
#include "kiln/kiln.h"

namespace kiln::c {

/// Keeps the sentence for kiln_last_error() and returns the status.
[[gnu::cold]] kiln_status failed(ErrorKind kind, std::string_view sentence) noexcept;
/// The same for the exception that is handled now.
[[gnu::cold]] kiln_status failed() noexcept;
[[noreturn, gnu::cold]] void refuse_null(const char* what);
[[noreturn, gnu::cold]] void refuse_size(const char* what, std::size_t size, std::size_t known);

/// Runs the work of a function of kiln.h.
template <class Work>
kiln_status guarded(Work&& work) noexcept {
  try {
    work();
    return KILN_OK;
  } catch (...) {
    return failed();
  }
}

/// Throws Error(bad_input) for null.
template <class Type>
Type& given(Type* pointer, const char* what) {
  if (pointer == nullptr) [[unlikely]]
    refuse_null(what);
  return *pointer;
}
/// Throws Error(bad_input) for null and for a struct of another size: version 1 of this library has no older callers.
template <class Struct>
Struct& sized(Struct* pointer, const char* what) {
  Struct& found = given(pointer, what);
  if (found.size != sizeof(Struct)) [[unlikely]]
    refuse_size(what, found.size, sizeof(Struct));
  return found;
}
/// Throws Error(bad_input) for null where there is to be an array.
template <class Type>
void given_array(Type* pointer, std::size_t count, const char* what) {
  if (pointer == nullptr && count > 0) [[unlikely]]
    refuse_null(what);
}

/// A copy for kiln_free_text().
char* text_of(std::string_view text);
/// Lines of texts, for kiln_free_text().
char* lines_of(const auto& texts) {
  std::string lines;
  for (const auto& each : texts) {
    if (!lines.empty()) lines += '\n';
    lines += each;
  }
  return text_of(lines);
}

}  // namespace kiln::c
