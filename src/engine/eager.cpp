// Loading::eager: what the files hold of an op is made ready before its first launch.
#include "engine/state.hpp"

namespace kiln::engine {

void OpState::load_all() {
  const cuda::Context::Scope scope(engine.context);
  const cuda::RelaxedCapture relaxed;
  const spec::DeviceFacts& device = engine.context.info().facts;
  const Regime regime = engine.options.regime;
  for (const store::Found<store::Record>& found : engine.layers.records(op.name)) {
    const auto bucket = spec::parse_bucket(op, found.value.bucket);
    // Another device's, another revision's, or a refinement, which comes with its bucket.
    if (!bucket || spec::record_key(op, *bucket, device, regime) != found.value.key) continue;
    if (hot.find(*bucket) != nullptr) continue;  // an earlier layer's
    const Lookup lookup = look_up(op, *bucket, device, regime, engine.layers, false);
    if (!lookup.is_hit()) continue;
    try {
      auto plan = load(lookup, Code::stored);
      const PlanState& loaded = *plan;
      {
        const std::lock_guard lock(mutex_);
        hot.publish(*bucket, plans_.emplace_back(std::move(plan)).get());
      }
      make_runner_ups(loaded, Code::stored);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the first launch that needs it meets the same and says so
    }
  }
  begin_serving();
}

}  // namespace kiln::engine
