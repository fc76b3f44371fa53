// From answers to loaded plans: made once, by whoever asks first; what cannot be made, and what may be later.
#include "plan/plan_store.hpp"

#include <atomic>
#include <barrier>
#include <thread>

#include "engine/scale_engine.hpp"

using namespace kiln;
using namespace kiln::answer;
using namespace kiln::plan;
using namespace kiln::engine;
using namespace kiln::engine::testing;

namespace {

using Code = PlanStore::Code;
using Try = PlanStore::Try;

const Problem stored_bucket = sized(64, 128), lower_sizes = sized(40, 128);

/// A store with a record of two configs: `small` up to 48 rows, `large` above.
struct Stored : ScaleEngine {
  Stored() { put(stored_bucket, {tiled(small, "rows=33..48 cols=65..128"), tiled(large, "rows=49..64 cols=65..128")}); }
  std::unique_ptr<BucketPlans> load(Code code = Code::any) {
    const cuda::Context::Scope scope(engine.context);
    return op.plans.load(op.resolve(stored_bucket, false), code);
  }
  std::unique_ptr<BucketPlans> load_for(const Problem& problem) {
    const cuda::Context::Scope scope(engine.context);
    auto plans = std::make_unique<BucketPlans>(op.resolve(stored_bucket, false));
    op.plans.load_for(*plans, problem);
    return plans;
  }
  static constexpr const char* small = "threads=128 vector=1";
  static constexpr const char* large = "threads=64 vector=4";
};

std::int64_t module_loads() { return query("calls cuModuleLoadDataEx"); }

}  // namespace

TEST_CASE("a bucket is loaded with a plan for each config that its sizes pick" * doctest::skip(no_plans())) {
  Stored engine;
  const auto plans = engine.load();
  CHECK(plans->made().size() == 2);
  CHECK(plans->edge->config == Stored::large);
  CHECK(plans->edge->at(stored_bucket) == plans->edge);
  CHECK(plans->edge->made_at(lower_sizes).config == Stored::small);
  CHECK(engine.op.plans.hot.find(stored_bucket) == nullptr);  // until it is published
}

TEST_CASE("threads that ask for a bucket at once make it once, and all get its plan" * doctest::skip(no_plans())) {
  Stored engine;
  constexpr int count = 8;
  std::atomic<int> made = 0;
  std::vector<const PlanState*> found(count, nullptr);
  std::barrier all_here(count);
  {
    std::vector<std::jthread> threads;
    for (const PlanState*& each : found)
      threads.emplace_back([&] {
        all_here.arrive_and_wait();
        each = engine.op.plans.make_once(stored_bucket, [&] {
          ++made;
          return engine.load();
        });
      });
  }
  CHECK(made == 1);
  CHECK(found.front() != nullptr);
  CHECK(found == std::vector<const PlanState*>(count, found.front()));
  CHECK(engine.op.plans.hot.find(stored_bucket) == found.front());
}

TEST_CASE("a bucket that could not be made is tried again by the next one that asks" * doctest::skip(no_plans())) {
  Stored engine;
  const Error failure = error_of([&] {
    engine.op.plans.make_once(stored_bucket,
                              []() -> std::unique_ptr<BucketPlans> { throw Error(ErrorKind::io, "the disk is gone"); });
  });
  CHECK(std::string(failure.what()) == "the disk is gone");
  CHECK(engine.op.plans.hot.find(stored_bucket) == nullptr);
  CHECK(engine.op.plans.make_once(stored_bucket, [&] { return engine.load(); }) != nullptr);
}

TEST_CASE("what was published while a bucket was being made goes on serving" * doctest::skip(no_plans())) {
  Stored engine;
  const PlanState* winner = nullptr;
  const PlanState* found = engine.op.plans.make_once(stored_bucket, [&] {
    auto tuned = engine.load();
    winner = tuned->edge;
    engine.op.plans.publish(std::move(tuned));
    return engine.load();
  });
  CHECK(found == winner);
  CHECK(engine.op.plans.hot.find(stored_bucket) == winner);
  int visited = 0;
  engine.op.plans.for_each([&](const BucketPlans&) { ++visited; });
  CHECK(visited == 2);  // a launch may still hold the one that was not published
}

TEST_CASE("a config that the driver refuses leaves its sizes to the next answer, and is warned of once" *
          doctest::skip(no_plans())) {
  Stored engine;
  control("module CUDA_ERROR_INVALID_IMAGE scale_tiled<float, 128");
  const auto plans = engine.load();
  CHECK(plans->edge->at(lower_sizes) == plans->edge);
  CHECK(engine.op.plans.make(plans->slot(0), *plans, Code::any) == nullptr);
  const auto warnings = engine.engine.warnings();
  REQUIRE(warnings.size() == 1);
  CHECK_MESSAGE(warnings[0].find(std::string(Stored::small) + " is left out: ") != std::string::npos, warnings[0]);
}

TEST_CASE("a config that memory did not suffice for is tried again: by a launch after a pause, else at once" *
          doctest::skip(no_plans())) {
  Stored engine;
  control("fail cuModuleLoadDataEx CUDA_ERROR_OUT_OF_MEMORY at 2");
  const auto plans = engine.load();
  PlanSlot& failed = plans->slot(0);
  CHECK(failed.made() == nullptr);
  const std::int64_t before = module_loads();
  CHECK(engine.op.plans.make(failed, *plans, Code::any, Try::if_due) == nullptr);
  CHECK(module_loads() == before);
  const PlanState* made = engine.op.plans.make(failed, *plans, Code::any, Try::now);
  REQUIRE(made != nullptr);
  CHECK(made->config == Stored::small);
  CHECK(failed.made() == made);
}

TEST_CASE("where only stored machine code may be loaded nothing is compiled" * doctest::skip(no_plans())) {
  Stored engine;
  CHECK(error_of([&] { engine.load(Code::stored); }).kind() == ErrorKind::not_tuned);
  CHECK(engine.engine.cubins.compiled() == 0);
  const auto compiled = engine.load();
  CHECK(engine.engine.cubins.compiled() == 2);
  CHECK(engine.load(Code::stored)->made().size() == 2);
  CHECK(engine.engine.cubins.compiled() == 2);
}

TEST_CASE("stored machine code that the driver refuses is replaced and counted" * doctest::skip(no_plans())) {
  Stored engine;
  engine.load().reset();  // which unloads it
  const std::int64_t before = module_loads();
  control("fail cuModuleLoadDataEx CUDA_ERROR_INVALID_IMAGE");
  const auto plans = engine.load();
  CHECK(plans->edge->config == Stored::large);
  CHECK(plans->made().size() == 2);
  CHECK(module_loads() == before + 3);
  CHECK(engine.stats().misses.refused_cubin == 1);
}

TEST_CASE("a bucket of several stale configs is counted once" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  std::vector<Chosen> choices{tiled("threads=128 vector=1", "rows=33..48 cols=65..128"),
                              tiled("threads=64 vector=4", "rows=49..64 cols=65..128")};
  for (Chosen& each : choices) each.stale = true;
  engine.put(stored_bucket, choices);
  CHECK(engine.launch(stored_bucket) == Origin::overlay);
  CHECK(engine.launch(lower_sizes) == Origin::overlay);
  CHECK(engine.stats().stale == 1);
}

TEST_CASE("a bucket counts as stale when it serves by a stale config, not before" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  std::vector<Chosen> choices{tiled(Stored::small, "rows=33..48 cols=65..128"),
                              tiled(Stored::large, "rows=49..64 cols=65..128")};
  choices[0].stale = true;
  engine.put(stored_bucket, choices);
  const cuda::Context::Scope scope(engine.engine.context);
  engine.op.plans.load(engine.op.resolve(stored_bucket, false)).reset();  // compiles both
  const auto at_edge = [&] {
    auto plans = std::make_unique<BucketPlans>(engine.op.resolve(stored_bucket, false));
    engine.op.plans.load_for(*plans, stored_bucket);
    return plans;
  };
  const auto never_served = at_edge();
  REQUIRE(engine.op.plans.make(never_served->slot(0), *never_served, Code::stored) != nullptr);
  CHECK(engine.stats().stale == 0);
  engine.op.plans.publish(at_edge());
  CHECK(engine.launch(stored_bucket) == Origin::overlay);
  CHECK(engine.stats().stale == 0);
  CHECK(engine.launch(lower_sizes) == Origin::overlay);
  CHECK(engine.stats().stale == 1);
}

TEST_CASE("a bucket that a launch cannot load from files is loaded whole, and its configs are counted once" *
          doctest::skip(no_plans())) {
  ScaleEngine engine(MissPolicy::nearest);
  std::vector<Chosen> choices{tiled(Stored::small, "rows=33..48 cols=65..128"),
                              tiled(Stored::large, "rows=49..64 cols=65..128")};
  for (Chosen& each : choices) each.stale = true;
  engine.put(stored_bucket, choices);
  {
    const cuda::Context::Scope scope(engine.engine.context);
    engine.op.plans.load(engine.op.resolve(stored_bucket, false)).reset();  // which unloads it
  }
  const Stats before = engine.stats();
  std::int64_t refused = 0;
  SUBCASE("for want of memory") { control("fail cuModuleLoadDataEx CUDA_ERROR_OUT_OF_MEMORY at 2"); }
  SUBCASE("for stored machine code that the driver refuses") {
    control("module CUDA_ERROR_INVALID_IMAGE scale_tiled<float, 128");
    refused = 1;
  }
  CHECK(engine.launch(lower_sizes) == Origin::overlay);
  CHECK(engine.stats().stale == before.stale + 1);
  CHECK(engine.stats().misses.refused_cubin == before.misses.refused_cubin + refused);
}

TEST_CASE("where files hold the machine code of all sizes, a launch loads that of its own and of the upper edge" *
          doctest::skip(no_plans())) {
  Stored engine;
  const cuda::Context::Scope scope(engine.engine.context);
  const Resolution found = engine.op.resolve(stored_bucket, false);
  CHECK_FALSE(engine.op.plans.holds_code(found));
  engine.load();
  CHECK(engine.op.plans.holds_code(found));
  const auto of_edge = engine.load_for(stored_bucket);
  CHECK(of_edge->made().size() == 1);
  CHECK(of_edge->edge->at(stored_bucket) == of_edge->edge);
  CHECK(of_edge->edge->at(lower_sizes) == nullptr);
  CHECK(&of_edge->edge->made_at(lower_sizes) == of_edge->edge);
  const auto of_lower = engine.load_for(lower_sizes);
  REQUIRE(of_lower->edge->at(lower_sizes) != nullptr);
  CHECK(of_lower->edge->at(lower_sizes)->config == Stored::small);
  engine.op.plans.make_all_sizes(*of_edge);
  REQUIRE(of_edge->edge->at(lower_sizes) != nullptr);
  CHECK(of_edge->edge->at(lower_sizes)->config == Stored::small);
}

TEST_CASE("sizes whose own config cannot be loaded any more are served by the upper edge's" *
          doctest::skip(no_plans())) {
  Stored engine;
  engine.load().reset();  // which unloads it
  const cuda::Context::Scope scope(engine.engine.context);
  const auto plans = engine.load_for(stored_bucket);
  control("module CUDA_ERROR_INVALID_IMAGE scale_tiled<float, 128");
  CHECK(&engine.op.plans.make_at(*plans, lower_sizes) == plans->edge);
  CHECK(plans->edge->at(lower_sizes) == plans->edge);
}

TEST_CASE("sizes whose own config cannot be loaded for now get it later, and the upper edge's until then" *
          doctest::skip(no_plans())) {
  Stored engine;
  engine.load().reset();
  const cuda::Context::Scope scope(engine.engine.context);
  const auto plans = engine.load_for(stored_bucket);
  control("fail cuModuleLoadDataEx CUDA_ERROR_OUT_OF_MEMORY at 1");
  CHECK(&engine.op.plans.make_at(*plans, lower_sizes) == plans->edge);
  CHECK(plans->edge->at(lower_sizes) == nullptr);
  CHECK(&engine.op.plans.make_at(*plans, lower_sizes) == plans->edge);  // its pause lasts
  engine.op.plans.make_all_sizes(*plans);
  REQUIRE(plans->edge->at(lower_sizes) != nullptr);
  CHECK(plans->edge->at(lower_sizes)->config == Stored::small);
}
