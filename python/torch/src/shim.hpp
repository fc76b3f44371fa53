// Tensors of torch by LibTorch's stable ABI, whose target is torch 2.11.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "table.hpp"

namespace kiln_torch {

/// Throws what torch raises as a RuntimeError.
[[noreturn]] void fail(const std::string& sentence);
void check_torch(AOTITorchError code, const char* what);

/// The package kiln's functions.
const kiln_python_table& kiln();
/// Throws why a function of the table failed.
void check_kiln(kiln_status status);

/// A reference to a tensor.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle handle) noexcept : handle_(handle) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  [[nodiscard]] AtenTensorHandle get() const noexcept { return handle_; }
  AtenTensorHandle release() noexcept { return std::exchange(handle_, nullptr); }

 private:
  AtenTensorHandle handle_ = nullptr;
};

/// What the tensor is; sizes and strides live as long as it does.
struct Description {
  std::int64_t rank;
  std::int64_t *sizes, *strides;
  void* address;
  kiln_dtype type;
  std::int32_t device;  // KILN_DEVICE_HOST for host memory
};
/// Throws for elements that Kiln does not have; `name` is for the sentence.
Description describe(const Tensor& tensor, const std::string& name);

/// Dense, of torch's allocator, on the current stream of `device`.
Tensor empty(std::span<const std::int64_t> sizes, kiln_dtype type, std::int32_t device);
/// The tensor itself where it is dense, else a copy.
Tensor contiguous(Tensor tensor);
void fill(const Tensor& tensor, float value);
kiln_stream current_stream(std::int32_t device);
/// Has Kiln take workspaces from torch's allocator.
void share_allocator();

}  // namespace kiln_torch
