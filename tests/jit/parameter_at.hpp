// What a kernel would read at the address of one of its parameters.
#pragma once

#include <cstring>

namespace kiln::jit::testing {

template <typename Number>
Number at(const void* address) {
  Number number;
  std::memcpy(&number, address, sizeof number);
  return number;
}

}  // namespace kiln::jit::testing
