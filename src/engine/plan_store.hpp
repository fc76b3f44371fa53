// The plans of an op: from an answer to machine code that is loaded, made once and published for launches.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/bucket_plans.hpp"
#include "engine/hot_table.hpp"

namespace kiln::engine {

struct State;

class PlanStore {
 public:
  PlanStore(State& engine, const manifest::Op& op, manifest::BucketForm form) : hot(form), engine_(engine), op_(op) {}

  /// What the hot table has for the bucket, made and published by one thread if it has nothing, while others that ask wait.
  const PlanState* make_once(const Problem& bucket, const std::function<std::unique_ptr<BucketPlans>()>& make);
  /// In place of what the hot table has for the bucket.
  void publish(std::unique_ptr<BucketPlans> plans);

  enum class Code : std::uint8_t { any, stored };  // what no file has is compiled, or is Error(not_tuned)
  /// A bucket's plans, those made that sizes pick among. Throws Error(not_tuned) where there is no answer, and what keeps the plan of the bucket's
  /// upper edge from being made; another one that cannot be made leaves its sizes to the next answer.
  std::unique_ptr<BucketPlans> load(Resolution resolution, Code code = Code::any);
  /// The slot's plan, made if it is not there yet. Null for one that cannot be made, or not for now; but throws where only the default is left to
  /// serve, where only stored code is asked for, and for a stopped compile. `if_due`: for a launch, which does not pay for each try and goes on
  /// past a stopped compile.
  enum class Try : std::uint8_t { now, if_due };
  const PlanState* make(PlanSlot& slot, BucketPlans& of, Code code, Try when = Try::now);
  /// The plans that serve where the bucket's library does not. None where no library serves.
  void make_without_library(BucketPlans& plans, Code code);

  /// Begins the compiles that loading it takes, all at once.
  void begin_compiles(const Resolution& resolution);

  /// Calls `visit` with each bucket's plans, those that were replaced too; not for work that takes long.
  void for_each(const std::function<void(BucketPlans&)>& visit);

  alignas(64) HotTable hot;  // what a look reads of it: one line

 private:
  std::unique_ptr<PlanState> load_plan(const Answer& answer, BucketPlans& of, Code code);
  jit::Executable load_executable(const Answer& answer, std::span<const std::int64_t> frame, Code code);
  std::shared_ptr<jit::Module> module_of(const Answer& answer, std::span<const std::int64_t> frame, Code code);
  std::shared_ptr<jit::Module> load_module(const tune::KeyedCubin& cubin, const Answer& answer,
                                           std::span<const std::int64_t> frame);
  SizeTable size_table(BucketPlans& plans, Code code);

  State& engine_;
  const manifest::Op& op_;
  std::mutex mutex_;  // guards what follows, and publication
  std::condition_variable ready_;
  std::vector<Problem> in_flight_;  // buckets that are being made
  std::vector<std::unique_ptr<BucketPlans>> plans_;
};

}  // namespace kiln::engine
