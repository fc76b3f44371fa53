#include "plan/op_state.hpp"

#include <algorithm>

#include "plan/owner.hpp"

namespace kiln::plan {

namespace {

bool has_reports(const manifest::Op& op) {
  for (const manifest::Implementation& each : op.implementations)
    for (const manifest::Pass& pass : each.passes)
      if (std::ranges::find(pass.arguments, manifest::ArgumentKind::report, &manifest::Argument::kind) !=
          pass.arguments.end())
        return true;
  return false;
}

}  // namespace

OpState::OpState(Owner& of, std::size_t index_in_owner)
    : owner(of),
      op(of.ops[index_in_owner]),
      bucketing(op),
      binder(op, of.context.info().facts),
      plans(of, op, bucketing.form()),
      index(static_cast<std::uint32_t>(index_in_owner)) {
  for (std::size_t i = 0; i < op.axes.size(); ++i)
    if (op.axes[i].on_device) on_device |= 1U << i;
  reports = on_device != 0 || has_reports(op) || op.is_of_team();
}

const manifest::DeviceFacts& OpState::device() const noexcept { return owner.context.info().facts; }

manifest::Site OpState::site() const noexcept { return {op, device(), owner.options.regime}; }

answer::Resolution OpState::resolve(const Problem& problem, bool fallbacks) const {
  return answer::resolve(site(), problem, owner.layers, fallbacks);
}

bool OpState::takes_fallbacks() const noexcept {
  return owner.options.on_miss == MissPolicy::nearest || owner.options.on_miss == MissPolicy::background;
}

}  // namespace kiln::plan
