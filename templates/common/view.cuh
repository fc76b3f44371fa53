// A tensor as a kernel takes it by value, for { view = "NAME" } in a pass's args.
#pragma once

namespace kiln {

/// Its address, and the strides that op.toml does not fix: in elements, outermost first. A kernel may name them by a
/// structure of its own with the same members in the same order.
template <typename T, int count>
struct view {
  T* address;
  long long strides[count];
};

}  // namespace kiln
