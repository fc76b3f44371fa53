#include "manifest/op.hpp"

#include <algorithm>

namespace kiln::manifest {

int Op::first_parameter() const noexcept { return first_device_fact() + static_cast<int>(DeviceFacts::names.size()); }

const Implementation* Op::find(std::string_view implementation) const noexcept {
  const auto found = std::ranges::find(implementations, implementation, &Implementation::name);
  return found == implementations.end() ? nullptr : &*found;
}

DType Op::dtype_of(const Tensor& tensor, std::span<const std::int64_t> frame) const noexcept {
  if (tensor.selection < 0) return tensor.dtype;
  const auto chosen = static_cast<std::size_t>(
      frame[static_cast<std::size_t>(first_static()) + static_cast<std::size_t>(tensor.selection)]);
  return selections[static_cast<std::size_t>(tensor.selection)].dtypes[chosen];
}

Tolerance Op::tolerance_of(DType type, std::span<const std::int64_t> frame) const {
  const auto found = tolerance.find(type);
  if (found == tolerance.end()) return {};
  const auto counts = [&](const Tolerance& each) { return !each.when || each.when->evaluate(frame).truth(); };
  const auto first = std::ranges::find_if(found->second, counts);
  return first == found->second.end() ? Tolerance{} : *first;
}

}  // namespace kiln::manifest
