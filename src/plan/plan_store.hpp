// The plans of an op: loads answers' machine code, once, and publishes it for launches.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_set>
#include <vector>

#include "answer/machine_code.hpp"
#include "plan/bucket_plans.hpp"
#include "plan/hot_table.hpp"

namespace kiln::plan {

struct Owner;

/// Whether a later try may succeed: memory, a thread, a process or a file was lacking, the compile was interrupted, or
/// a rank of the team was late.
bool may_pass(const std::exception& failure);

class PlanStore {
 public:
  PlanStore(Owner& owner, const manifest::Op& op, manifest::BucketForm form) : hot(form), owner_(owner), op_(op) {}

  /// Returns the bucket's plan in the hot table. Where there is none, one thread calls `make` and publishes, and others
  /// that ask wait. What `make` throws goes to its thread, and one of the others tries next. Throws Error(bad_input)
  /// for a wait within a callback of a tune.
  const PlanState* make_once(const Problem& bucket, const std::function<std::unique_ptr<BucketPlans>()>& make);
  /// Replaces the bucket's plans in the hot table. Launches may go on using the old ones.
  void publish(std::unique_ptr<BucketPlans> plans);
  /// The same where a stand-in serves sizes of the bucket; with `expected`, where the hot table has that. Returns
  /// whether it did. Configs that served before have had their first launches.
  bool publish_over_stand_in(std::unique_ptr<BucketPlans> plans, const PlanState* expected = nullptr);
  /// The plans that serve the bucket if a stand-in is among them, else null. No lock.
  [[nodiscard]] const BucketPlans* stand_in_for(const Problem& bucket) const noexcept;

  enum class Code : std::uint8_t {
    any,     // compiles what no file has
    stored,  // throws Error(not_tuned) for what no file has, or what the driver refuses of it
    beside,  // leaves it to the background, where the owner compiles there; else as `any`
  };
  /// Loads the plans that a bucket's sizes pick. A plan that cannot be made leaves its sizes to the next answer, but
  /// the failure of the upper edge's plan is thrown. Throws Error(not_tuned) where there is no answer.
  std::unique_ptr<BucketPlans> load(answer::Resolution resolution, Code code = Code::any);
  /// The same for plans that are not published. After a failure of this or of load_for() it may be called again: what
  /// was loaded stays, and nothing is counted twice.
  void load(BucketPlans& plans, Code code = Code::any);
  /// Loads the plans of the upper edge and of the problem's sizes from files, and leaves those of other sizes to
  /// make_at(). Throws Error(not_tuned) where a file lacks one of the two.
  void load_for(BucketPlans& plans, const Problem& problem);
  /// Whether the files have the machine code of an answer; of all that the bucket's sizes pick. Reads none.
  [[nodiscard]] bool holds_code(const manifest::Bucket& bucket, const answer::Answer& answer);
  [[nodiscard]] bool holds_code(const answer::Resolution& resolution);
  /// Makes the plan of the problem's sizes if load_for() left it out, and returns it. Where that fails the plan of the
  /// upper edge serves them: for now if the failure may pass or the background compiles it, else for good.
  const PlanState& make_at(BucketPlans& plans, const Problem& problem);
  /// Makes the plans of all sizes that load_for() left out.
  void make_all_sizes(BucketPlans& plans);
  enum class Try : std::uint8_t {
    now,
    if_due,  // for launches: not before the slot's Retry is due, and an interrupted compile is no error
  };
  /// Makes the plans that Code::beside left to the background, and those of all sizes.
  void make_left(BucketPlans& plans);
  /// Returns the slot's plan, making it if needed; null where the background compiles it. A failure is warned of and
  /// gives null. It is thrown where the answer is a default, where `code` is stored, and where `when` is now and the
  /// compile was interrupted.
  const PlanState* make(PlanSlot& slot, BucketPlans& of, Code code, Try when = Try::now);
  /// Makes the plans that serve calls which the bucket's library declines. Does nothing for a bucket without a library.
  void make_without_library(BucketPlans& plans, Code code);

  /// Begins the compiles that load() of this resolution waits for, in parallel.
  void begin_compiles(const answer::Resolution& resolution, jit::Urgency urgency = jit::Urgency::now);
  /// Compiles the answer's machine code where no file has it, and begins that of the bucket's other sizes on idle cores
  /// alone. Throws what a load of the answer throws.
  void compile_first(const answer::Answer& answer, BucketPlans& of);

  /// Calls `visit` with all plans, replaced ones included, while it holds the store's lock.
  void for_each(const std::function<void(BucketPlans&)>& visit);

  alignas(64) HotTable hot;  // a look-up reads one cache line of it

 private:
  std::unique_ptr<PlanState> load_plan(const answer::Answer& answer, BucketPlans& of, Code code,
                                       jit::LibraryLoad load = jit::LibraryLoad::now);
  jit::Executable load_executable(const answer::Answer& answer, BucketPlans& of, std::span<const std::int64_t> frame,
                                  Code code, jit::LibraryLoad load);
  std::shared_ptr<jit::Module> module_of(const answer::Answer& answer, BucketPlans& of, Code code,
                                         jit::Urgency others = jit::Urgency::now);
  void begin_all_compiles(BucketPlans& of, jit::Urgency urgency);
  std::shared_ptr<jit::Module> load_stored(const answer::KeyedCubin& cubin);
  // Precondition of these two: the mutex is held.
  /// Publishes, and returns the plan that the hot table has from then on.
  const PlanState* serve(std::unique_ptr<BucketPlans> plans);
  /// Counts the bucket, once for all of its plans, if these are published and one that is made is stale.
  void note_stale(const BucketPlans& plans);
  PlanState& make_edge(BucketPlans& plans, Code code, jit::LibraryLoad load = jit::LibraryLoad::now);
  SizeTable size_table(BucketPlans& plans, Code code);
  void serve_by(BucketPlans& plans, PlanState& edge, SizeTable sizes);
  void make_first(BucketPlans& plans, const Problem& problem, Code code);
  const PlanState* plan_of_cell(PlanSlot& slot, BucketPlans& plans, Code code, Try when);
  std::unique_ptr<PlanState> load_plan_or_leave(PlanSlot& slot, BucketPlans& of);

  Owner& owner_;
  const manifest::Op& op_;
  std::mutex mutex_;  // guards the members below, and publication
  std::condition_variable ready_;
  std::vector<Problem> in_flight_;  // buckets that are being made
  std::vector<std::unique_ptr<BucketPlans>> plans_;
  std::unordered_set<Problem, manifest::ProblemHash> stale_;  // buckets that were counted
};

}  // namespace kiln::plan
