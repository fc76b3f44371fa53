#include "shim.hpp"

#include <dlfcn.h>

#include <array>

#include "cuda.hpp"

namespace kiln_torch {
namespace {

struct Types {
  std::array<std::int32_t, 10> of_torch;  // by kiln_dtype
  std::int32_t cuda = aoti_torch_device_type_cuda();
  std::int32_t contiguous = aoti_torch_memory_format_contiguous_format();
  Types() {
    of_torch[KILN_BF16] = aoti_torch_dtype_bfloat16();
    of_torch[KILN_F16] = aoti_torch_dtype_float16();
    of_torch[KILN_F32] = aoti_torch_dtype_float32();
    of_torch[KILN_F64] = aoti_torch_dtype_float64();
    of_torch[KILN_E4M3] = aoti_torch_dtype_float8_e4m3fn();
    of_torch[KILN_E5M2] = aoti_torch_dtype_float8_e5m2();
    of_torch[KILN_I8] = aoti_torch_dtype_int8();
    of_torch[KILN_U8] = aoti_torch_dtype_uint8();
    of_torch[KILN_I32] = aoti_torch_dtype_int32();
    of_torch[KILN_I64] = aoti_torch_dtype_int64();
  }
};
const Types& types() {
  static const Types made;
  return made;
}

kiln_dtype type_of(std::int32_t type, const std::string& name) {
  const Types& known = types();
  for (std::size_t i = 0; i < known.of_torch.size(); ++i)
    if (known.of_torch[i] == type) return static_cast<kiln_dtype>(i);
  if (type == aoti_torch_dtype_bool()) return KILN_U8;  // a byte, 0 or 1
  fail("tensor '" + name +
       "' has elements of a type that Kiln has not; it has bf16, f16, f32, f64, e4m3, e5m2, i8, u8, i32 and i64");
}

}  // namespace

void fail(const std::string& sentence) { throw std::runtime_error(sentence); }

void check_torch(AOTITorchError code, const char* what) {
  if (code != AOTI_TORCH_SUCCESS) [[unlikely]]
    fail(std::string("torch failed at ") + what + "; it has printed why");
}

void check_kiln(kiln_status status) {
  if (status != KILN_OK) [[unlikely]]
    fail(kiln().error());
}

Description describe(const Tensor& tensor, const std::string& name) {
  Description is{};
  std::int32_t type = 0, device_type = 0;
  const bool has_failed =
      aoti_torch_get_dim(tensor.get(), &is.rank) != 0 || aoti_torch_get_sizes(tensor.get(), &is.sizes) != 0 ||
      aoti_torch_get_strides(tensor.get(), &is.strides) != 0 || aoti_torch_get_dtype(tensor.get(), &type) != 0 ||
      aoti_torch_get_device_type(tensor.get(), &device_type) != 0 ||
      aoti_torch_get_device_index(tensor.get(), &is.device) != 0 ||
      aoti_torch_get_data_ptr(tensor.get(), &is.address) != 0;
  if (has_failed) [[unlikely]]
    check_torch(AOTI_TORCH_FAILURE, ("reading tensor '" + name + "'").c_str());
  is.type = type_of(type, name);
  if (device_type != types().cuda) is.device = KILN_DEVICE_HOST;
  return is;
}

Tensor empty(std::span<const std::int64_t> sizes, kiln_dtype type, std::int32_t device) {
  std::array<std::int64_t, 16> strides;
  if (sizes.size() > strides.size())
    fail("an output would have " + std::to_string(sizes.size()) + " dimensions, expected at most 16");
  std::int64_t step = 1;
  for (std::size_t i = sizes.size(); i-- > 0; step *= sizes[i] > 1 ? sizes[i] : 1) strides[i] = step;
  AtenTensorHandle made = nullptr;
  check_torch(aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(),
                                       types().of_torch[static_cast<std::size_t>(type)], types().cuda, device, &made),
              "allocating an output");
  return Tensor(made);
}

Tensor contiguous(Tensor tensor) {
  bool is_dense = false;
  check_torch(aoti_torch_is_contiguous(tensor.get(), &is_dense), "reading a layout");
  if (is_dense) return tensor;
  StableIValue stack[2] = {reinterpret_cast<StableIValue>(tensor.release()),
                           static_cast<StableIValue>(static_cast<std::uint32_t>(types().contiguous))};
  check_torch(torch_call_dispatcher("aten::contiguous", "", stack, TORCH_ABI_VERSION), "copying an input");
  return Tensor(reinterpret_cast<AtenTensorHandle>(stack[0]));
}

void fill(const Tensor& tensor, float value) {
  if (value == 0) return check_torch(aoti_torch_zero_(tensor.get()), "filling a tensor with zeros");
  AtenTensorHandle with = nullptr, to = nullptr;
  check_torch(aoti_torch_scalar_to_tensor_float32(value, &with), "making a number");
  Tensor number(with);
  check_torch(aoti_torch_new_tensor_handle(tensor.get(), &to), "referring to an output");
  StableIValue stack[2] = {reinterpret_cast<StableIValue>(to), reinterpret_cast<StableIValue>(number.release())};
  check_torch(torch_call_dispatcher("aten::fill_", "Tensor", stack, TORCH_ABI_VERSION), "filling an output");
  Tensor(reinterpret_cast<AtenTensorHandle>(stack[0]));
}

kiln_stream current_stream(std::int32_t device) {
  void* stream = nullptr;
  check_torch(cuda().current_stream(device, &stream), "asking for the current stream");
  return static_cast<kiln_stream>(stream);
}

}  // namespace kiln_torch
