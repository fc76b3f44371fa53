// What each row of a bench begins with, so that it says by itself what was measured.
#pragma once

#include <string>
#include <string_view>

namespace bench {

/// {"bench":NAME,"build":... as a JSON object without its closing brace.
std::string row(std::string_view name);
/// Row of something that NVRTC compiled, with the compiler as records name it; without one where there is no NVRTC here.
std::string compiled_row(std::string_view name);
template <class Json>
Json compiled_row_as(std::string_view name) {
  return Json::parse(compiled_row(name) + "}");
}

}  // namespace bench
