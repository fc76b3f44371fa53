// Tensors and streams of other libraries, as Python objects give them.
#pragma once

#include <array>

#include "dlpack.h"
#include "python.hpp"

namespace kiln_python {

/// A CUDA stream, where one is known.
struct Stream {
  bool is_known = false;
  kiln_stream handle = nullptr;
};
/// Of an int, or an object with __cuda_stream__, cuda_stream or ptr. None is unknown.
Stream stream_of(nb::handle object);

/// What one call reads. Tensors that it borrows are given back at its end.
class TensorReader {
 public:
  TensorReader(const std::string& op, Stream given) : op_(op), stream_(given), is_given_(given.is_known) {}
  ~TensorReader();
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  /// `is_read_only`: whether its owner says so.
  kiln_tensor read(nb::handle name, nb::handle object, bool& is_read_only);
  /// The stream given, else that of the tensors. Throws kiln.Error where there is none.
  [[nodiscard]] kiln_stream stream() const;
  /// What its __dlpack_device__ says.
  DLDevice device_of(nb::handle name, nb::handle object) const;
  /// Whether read() would take it.
  static bool is_tensor(nb::handle object);

 private:
  [[noreturn]] void refuse(nb::handle name, const std::string& what) const;
  kiln_tensor view(nb::handle name, const DLTensor& tensor) const;
  void take_stream(nb::handle name, Stream found);
  kiln_tensor read_exchange(nb::handle name, nb::handle object, const DLPackExchangeAPI& api, bool& is_read_only);
  kiln_tensor read_dlpack(nb::handle name, nb::handle object, bool& is_read_only);
  kiln_tensor read_array_interface(nb::handle name, nb::handle interface, bool& is_read_only);
  kiln_tensor read_array(nb::handle name, nb::handle interface, bool& is_read_only);
  void keep(DLManagedTensorVersioned* versioned, DLManagedTensor* plain);

  struct Kept {
    DLManagedTensorVersioned* versioned;
    DLManagedTensor* plain;
  };
  const std::string& op_;
  Stream stream_;
  bool is_given_;
  nb::object stream_from_;  // the tensor that stream_ is of
  const DLPackExchangeAPI* asked_ = nullptr;
  int asked_device_ = -1;
  std::array<Kept, KILN_MAX_TENSORS + KILN_MAX_AXES> kept_;
  std::size_t kept_count_ = 0;
};

}  // namespace kiln_python
