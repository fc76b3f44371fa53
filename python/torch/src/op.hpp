// One op of torch: reads its arguments, allocates its results, and launches Kiln's op.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shim.hpp"
#include "signature.hpp"

namespace kiln_torch {

/// An op of Kiln on one device, and what calls begin with.
struct Bound {
  kiln_op* op = nullptr;
  kiln_binding binding = KILN_BINDING_INIT;
  std::uint32_t axis_count = 0;
  std::vector<std::uint32_t> arguments, sizes, outputs, axes;  // ids, in the signature's order
};

class Op {
 public:
  Op(std::string name, Signature signature);

  /// The boxed call of LibTorch's stable ABI: takes the arguments from the stack, and puts the results there.
  void call(StableIValue* stack);

 private:
  class Call;
  const Bound& on(std::int32_t device);
  std::unique_ptr<Bound> bind(std::int32_t device) const;

  std::string name_;
  Signature signature_;
  std::array<std::atomic<const Bound*>, 16> by_device_{};
  std::mutex making_;
};

}  // namespace kiln_torch
