// For host.py: an op of LibTorch's stable ABI that allocates rms_norm's result and launches nothing, registered as Kiln's ops are.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

namespace {

AtenTensorHandle tensor(StableIValue value) { return reinterpret_cast<AtenTensorHandle>(value); }

/// empty_norm(Tensor x, Tensor weight, float epsilon) -> Tensor, whose arguments are ours.
void empty_norm(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const AtenTensorHandle x = tensor(stack[0]);
  std::int64_t rank = 0, *sizes = nullptr, *strides = nullptr;
  std::int32_t type = 0, device = 0, index = 0;
  AtenTensorHandle made = nullptr;
  aoti_torch_get_dim(x, &rank);
  aoti_torch_get_sizes(x, &sizes);
  aoti_torch_get_strides(x, &strides);
  aoti_torch_get_dtype(x, &type);
  aoti_torch_get_device_type(x, &device);
  aoti_torch_get_device_index(x, &index);
  aoti_torch_empty_strided(rank, sizes, strides, type, device, index, &made);
  aoti_torch_delete_tensor_object(x);
  aoti_torch_delete_tensor_object(tensor(stack[1]));
  stack[0] = reinterpret_cast<StableIValue>(made);
}

const bool is_defined = [] {
  TorchLibraryHandle library = nullptr;
  aoti_torch_library_init_def("kiln_bench", __FILE__, __LINE__, &library);
  aoti_torch_library_def(library, "empty_norm(Tensor x, Tensor weight, float epsilon) -> Tensor");
  aoti_torch_library_init_impl("kiln_bench", "CUDA", __FILE__, __LINE__, &library);
  return torch_library_impl(library, "empty_norm", empty_norm, TORCH_ABI_VERSION) == AOTI_TORCH_SUCCESS;
}();

}  // namespace
