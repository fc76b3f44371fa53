// The names of CUresult, and the exception that carries one to the entry point.
#pragma once

#include <span>

#include "cuda/driver_types.hpp"

namespace fake_cuda {

struct ErrorText {
  CUresult result;
  const char* name;
  const char* description;
};
std::span<const ErrorText> error_texts() noexcept;

/// Ends the call with `result`.
struct Failure {
  CUresult result;
};

inline void require(bool holds, CUresult otherwise) {
  if (!holds) throw Failure{otherwise};
}

}  // namespace fake_cuda
