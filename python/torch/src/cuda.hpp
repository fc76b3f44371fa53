// The functions of torch's CUDA half, which a torch for the CPU alone does not have.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>

namespace kiln_torch {

struct CudaShim {
  AOTITorchError (*current_stream)(std::int32_t device, void** stream);
  AOTITorchError (*new_stream_guard)(void* stream, std::int32_t device, void** guard);
  AOTITorchError (*delete_stream_guard)(void* guard);
  AOTITorchError (*allocate)(std::uint64_t bytes, void** address);
  AOTITorchError (*free)(void* address);
};
/// Throws where this torch has no CUDA.
const CudaShim& cuda();

}  // namespace kiln_torch
