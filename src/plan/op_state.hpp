// The state of one op of an engine, which its launches share: hit_path.hpp, refused_launch.hpp, capture_launch.hpp.
#pragma once

#include <cstdint>

#include "kiln/engine.hpp"
#include "manifest/binder.hpp"
#include "manifest/bucketing.hpp"
#include "plan/plan_store.hpp"

namespace kiln::plan {

struct Owner;

struct OpState {
  OpState(Owner& of, std::size_t index_in_owner);
  [[nodiscard]] const manifest::DeviceFacts& device() const noexcept;
  /// The op on the owner's device, in its regime.
  [[nodiscard]] manifest::Site site() const noexcept;
  /// answer::resolve for the owner's device, regime and files.
  [[nodiscard]] answer::Resolution resolve(const Problem& problem, bool fallbacks) const;
  /// Whether fallbacks serve a bucket without a record, rather than a tune or an error.
  [[nodiscard]] bool takes_fallbacks() const noexcept;

  Owner& owner;
  const manifest::Op& op;
  const manifest::Bucketing bucketing;
  const manifest::Binder binder;
  PlanStore plans;
  const std::uint32_t index;    // into Owner::ops
  std::uint32_t on_device = 0;  // bit i: axis i may have its length on the device
  bool reports = false;         // kernels may report lengths
};

}  // namespace kiln::plan
