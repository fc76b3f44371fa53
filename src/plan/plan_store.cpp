#include "plan/plan_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <system_error>

#include "kiln/error.hpp"
#include "plan/owner.hpp"

namespace kiln::plan {
namespace {

/// What the machine code of a plan is bound to, where its op is one of a team: plans of different configs have
/// different tags, as far as 16 bits tell.
team::TeamBinding binding_of(const team::Member& team, const answer::Resolution& resolution,
                             const answer::Answer& answer) {
  const manifest::Digest digest = manifest::Hasher().field(resolution.key).field(answer.name()).finish();
  return team.binding(std::uint32_t{static_cast<std::uint8_t>(digest[0])} << 8 | static_cast<std::uint8_t>(digest[1]));
}

std::vector<manifest::Region> regions_of(const BucketPlans& plans) {
  std::vector<manifest::Region> regions;
  for (const answer::Answer& each : plans.answers()) regions.push_back(each.region);
  return regions;
}

bool is_interrupt(const std::exception& failure) {
  const auto* error = dynamic_cast<const Error*>(&failure);
  return error != nullptr && error->kind() == ErrorKind::interrupted;
}

}  // namespace

bool may_pass(const std::exception& failure) {
  if (const auto* error = dynamic_cast<const Error*>(&failure))
    return error->kind() == ErrorKind::out_of_memory || error->kind() == ErrorKind::io ||
           error->kind() == ErrorKind::interrupted || error->kind() == ErrorKind::team_failed;
  return dynamic_cast<const std::bad_alloc*>(&failure) != nullptr ||
         dynamic_cast<const std::system_error*>(&failure) != nullptr;
}

const PlanState* PlanStore::make_once(const Problem& bucket,
                                      const std::function<std::unique_ptr<BucketPlans>()>& make) {
  std::unique_lock lock(mutex_);
  const auto is_free = [&] { return std::ranges::find(in_flight_, bucket) == in_flight_.end(); };
  if (!is_free()) owner_.refuse_wait({{op_, owner_.context.info().facts}, bucket});
  ready_.wait(lock, is_free);
  if (const PlanState* plan = hot.find(bucket)) return plan;
  in_flight_.push_back(bucket);
  lock.unlock();
  std::unique_ptr<BucketPlans> plans;
  std::exception_ptr failure;
  try {
    plans = make();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  std::erase(in_flight_, bucket);
  ready_.notify_all();
  if (failure) std::rethrow_exception(failure);
  // A fallback must not replace a winner that was published meanwhile.
  if (const PlanState* winner = hot.find(bucket)) {
    plans_.push_back(std::move(plans));
    return winner;
  }
  return serve(std::move(plans));
}

const PlanState* PlanStore::serve(std::unique_ptr<BucketPlans> plans) {
  BucketPlans& of = *plans_.emplace_back(std::move(plans));
  hot.publish(of.resolution.bucket.edge, of.edge);
  of.is_published = true;
  note_stale(of);
  return of.edge;
}

void PlanStore::publish(std::unique_ptr<BucketPlans> plans) {
  const std::lock_guard lock(mutex_);
  serve(std::move(plans));
}

const BucketPlans* PlanStore::stand_in_for(const Problem& bucket) const noexcept {
  const PlanState* const plan = hot.find(bucket);
  return plan != nullptr && plan->of.stand_in ? &plan->of : nullptr;
}

bool PlanStore::publish_over_stand_in(std::unique_ptr<BucketPlans> plans, const PlanState* expected) {
  const std::lock_guard lock(mutex_);
  const BucketPlans* const before = stand_in_for(plans->resolution.bucket.edge);
  if (before == nullptr || (expected != nullptr && before->edge != expected)) return false;
  for (const PlanState* old : before->made())
    for (const PlanState* plan : plans->made())
      if (is_hit(old->origin) && is_same(old->answer, plan->answer))
        plan->counts_as = old->counts_as.exchange(Origin::hot);
  serve(std::move(plans));
  return true;
}

void PlanStore::for_each(const std::function<void(BucketPlans&)>& visit) {
  const std::lock_guard lock(mutex_);
  for (const auto& plans : plans_) visit(*plans);
}

/// Returns a module that is loaded already, else stored, else compiled and stored. Counts a record's missing machine
/// code.
std::shared_ptr<jit::Module> PlanStore::module_of(const answer::Answer& answer, BucketPlans& of, Code code,
                                                  jit::Urgency others) {
  answer::CodeLookup lookup(of.resolution.bucket, answer, [this] { return owner_.arch(); });
  if (!lookup.is_needed()) return nullptr;
  answer::Cubins& cubins = owner_.cubins;
  for (const std::string& compiler : {cubins.own_compiler(), answer.compiler})
    if (!compiler.empty())
      if (auto loaded = owner_.modules.find(jit::cubin_key(lookup.timed(), compiler))) return loaded;
  store::Counters met;
  while (const auto found = lookup.find_serving(cubins, &met))
    if (auto loaded = load_stored(*found)) return loaded;
  const bool is_refused = lookup.is_passed_over(cubins);
  if (is_refused) of.meets_refused = true;
  if (code != Code::any)
    throw Error(ErrorKind::not_tuned,
                fmt::format("{} machine code of {}", is_refused ? "the driver refuses the files'" : "no file has",
                            lookup.here().label));
  if (answer.is_hit() && !is_refused) owner_.counters.count(answer::reason_of(met, answer::Miss::no_cubin));
  const auto compiled = cubins.compile_and_keep(lookup.here(), [&] {
    if (!is_refused) begin_all_compiles(of, others);
  });
  return owner_.modules.get(compiled.key, compiled.cubin);
}

/// Returns null where the driver refuses it and something may be compiled in its place. Counts each refused cubin once.
std::shared_ptr<jit::Module> PlanStore::load_stored(const answer::KeyedCubin& cubin) {
  try {
    return owner_.modules.get(cubin.key, cubin.cubin);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::driver_failed) throw;
    if (owner_.cubins.note_refused(cubin.key)) owner_.counters.count(answer::Miss::refused_cubin);
    if (!owner_.cubins.can_compile()) throw;
    return nullptr;
  }
}

jit::Executable PlanStore::load_executable(const answer::Answer& answer, BucketPlans& of,
                                           std::span<const std::int64_t> frame, Code code, jit::LibraryLoad load) {
  try {
    if (!op_.is_of_team()) return {op_, *answer.implementation, frame, module_of(answer, of, code), nullptr, load};
    const team::TeamBinding binding = binding_of(*owner_.team, of.resolution, answer);
    return {op_, *answer.implementation, frame, module_of(answer, of, code), &binding, load};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::driver_failed) throw;
    throw Error(ErrorKind::driver_failed, fmt::format("{}/{}: {}", op_.name, answer.name(), error.what()));
  }
}

std::unique_ptr<PlanState> PlanStore::load_plan(const answer::Answer& answer, BucketPlans& of, Code code,
                                                jit::LibraryLoad load) {
  const auto frame = answer.frame(of.resolution.bucket, answer.at);
  return std::make_unique<PlanState>(of, of.resolution.bucket.edge, hot.form(), answer,
                                     load_executable(answer, of, frame, code, load));
}

void PlanStore::note_stale(const BucketPlans& plans) {
  const auto is_stale = [](const PlanSlot& slot) { return slot.made() != nullptr && slot.answer->stale; };
  if (plans.is_published && std::ranges::any_of(plans.slots, is_stale) &&
      stale_.insert(plans.resolution.bucket.edge).second)
    owner_.counters.count_stale();
}

/// Returns null where the background compiles what is missing.
std::unique_ptr<PlanState> PlanStore::load_plan_or_leave(PlanSlot& slot, BucketPlans& of) {
  if (slot.is_left) return nullptr;
  try {
    return load_plan(*slot.answer, of, Code::beside);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_tuned) throw;
  }
  slot.is_left = true;
  if (owner_.compiles_beside(op_, of)) return nullptr;
  slot.is_left = false;
  return load_plan(*slot.answer, of, Code::any);
}

void PlanStore::make_left(BucketPlans& plans) {
  for (PlanSlot& each : plans.slots) {
    if (!each.is_left) continue;
    try {
      make(each, plans, Code::any);
      each.is_left = false;
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a launch that needs it meets it and says so
    }
  }
  make_all_sizes(plans);
}

const PlanState* PlanStore::make(PlanSlot& slot, BucketPlans& of, Code code, Try when) {
  if (slot.settled.load(std::memory_order_acquire)) return slot.plan.get();
  if (when == Try::if_due && !slot.retry.is_due(Retry::Clock::now())) return nullptr;
  if (code == Code::beside && slot.is_left) return nullptr;
  const cuda::Context::Scope scope(owner_.context);
  const cuda::RelaxedCapture relaxed;
  const std::lock_guard making(slot.making);
  if (slot.settled.load(std::memory_order_relaxed)) return slot.plan.get();
  if (when == Try::if_due && !slot.retry.is_due(Retry::Clock::now())) return nullptr;
  const answer::Answer& answer = *slot.answer;
  try {
    slot.plan = code == Code::beside ? load_plan_or_leave(slot, of) : load_plan(answer, of, code);
    if (slot.plan == nullptr) return nullptr;
  } catch (const std::exception& failure) {
    const bool is_last_resort = answer.origin == Origin::default_;
    if (code == Code::stored || is_last_resort || (when == Try::now && is_interrupt(failure))) throw;
    const bool passing = may_pass(failure);
    owner_.warn(fmt::format("{}: {} is left out{}: {}", of.resolution.bucket.text(), answer.name(),
                            passing ? " for now" : "", failure.what()),
                of.resolution.bucket.op->name,
                manifest::to_string(*of.resolution.bucket.op, of.resolution.bucket.edge));
    if (passing) {
      slot.retry.failed(Retry::Clock::now());
      return nullptr;
    }
  }
  slot.settled.store(true, std::memory_order_release);
  if (answer.stale) {  // serve() looks at plans that were made before
    const std::lock_guard lock(mutex_);
    note_stale(of);
  }
  return slot.plan.get();
}

void PlanStore::make_without_library(BucketPlans& plans, Code code) {
  const auto answers = plans.answers();
  if (std::ranges::none_of(answers, [](const answer::Answer& each) { return each.implementation->is_library(); }))
    return;
  for (std::size_t i = 0; i < answers.size(); ++i)
    if (answers[i].role == store::Role::without_library && !answers[i].is_beyond) make(plans.slot(i), plans, code);
}

bool PlanStore::holds_code(const manifest::Bucket& bucket, const answer::Answer& answer) {
  answer::CodeLookup code(bucket, answer, [this] { return owner_.arch(); });
  return !code.is_needed() || code.is_held(owner_.cubins);
}

bool PlanStore::holds_code(const answer::Resolution& resolution) {
  return std::ranges::all_of(resolution.picked_by_size(),
                             [&](const answer::Answer* each) { return holds_code(resolution.bucket, *each); });
}

void PlanStore::begin_compiles(const answer::Resolution& resolution, jit::Urgency urgency) {
  if (!owner_.cubins.can_compile()) return;
  for (const answer::Answer* answer : resolution.picked_by_size()) {
    answer::CodeLookup code(resolution.bucket, *answer, [this] { return owner_.arch(); });
    if (code.is_needed() && !code.find_serving(owner_.cubins)) owner_.cubins.prefetch(code.here(), urgency);
  }
}

void PlanStore::begin_all_compiles(BucketPlans& of, jit::Urgency urgency) {
  if (of.lacks_code.exchange(true)) return;
  begin_compiles(of.resolution, urgency);
  owner_.lacks_code(op_, of.resolution.bucket.edge);
}

void PlanStore::compile_first(const answer::Answer& answer, BucketPlans& of) {
  module_of(answer, of, Code::any, jit::Urgency::spare);
}

/// Each size is served by its first answer whose plan can be made. An answer that failed is not tried again for other
/// cells.
SizeTable PlanStore::size_table(BucketPlans& plans, Code code) {
  std::vector<const PlanSlot*> failed;
  return {op_, plans.resolution.bucket.edge, regions_of(plans), [&](const Problem& problem) {
            for (PlanSlot* slot : plans.slots_for(problem)) {
              if (std::ranges::find(failed, slot) != failed.end()) continue;
              if (const PlanState* plan = make(*slot, plans, code)) return plan;
              failed.push_back(slot);
            }
            return plans.edge;
          }};
}

PlanState& PlanStore::make_edge(BucketPlans& plans, Code code, jit::LibraryLoad load) {
  if (plans.answers().empty()) throw Error(ErrorKind::not_tuned, plans.resolution.why_none);
  const auto at_edge = plans.slots_for(plans.resolution.bucket.edge);
  PlanSlot& first = at_edge.empty() ? plans.slots.front() : *at_edge.front();
  if (!first.settled.load(std::memory_order_relaxed)) {
    first.plan = load_plan(*first.answer, plans, code, load);
    first.settled.store(true, std::memory_order_release);
  }
  plans.edge = first.plan.get();
  return *first.plan;
}

std::unique_ptr<BucketPlans> PlanStore::load(answer::Resolution resolution, Code code) {
  auto plans = std::make_unique<BucketPlans>(std::move(resolution));
  load(*plans, code);
  return plans;
}

void PlanStore::load(BucketPlans& plans, Code code) {
  PlanState& edge = make_edge(plans, code);
  serve_by(plans, edge, size_table(plans, code));
}

void PlanStore::load_for(BucketPlans& plans, const Problem& problem) {
  // The edge's algorithm of a library is loaded when a launch takes it: this one may take another.
  PlanState& edge = make_edge(plans, Code::stored, jit::LibraryLoad::at_first_launch);
  make_first(plans, problem, Code::stored);
  serve_by(plans, edge, {op_, plans.resolution.bucket.edge, regions_of(plans), [&](const Problem& at) {
                           for (const PlanSlot* slot : plans.slots_for(at)) {
                             if (!slot->settled.load(std::memory_order_relaxed)) return SizeTable::unmade(*slot);
                             if (slot->plan != nullptr) return static_cast<const PlanState*>(slot->plan.get());
                           }
                           return plans.edge;
                         }});
}

void PlanStore::serve_by(BucketPlans& plans, PlanState& edge, SizeTable sizes) {
  plans.sizes.emplace(std::move(sizes));
  if (!plans.sizes->is_uniform()) edge.sizes = plans.sizes->words();
}

void PlanStore::make_first(BucketPlans& plans, const Problem& problem, Code code) {
  for (PlanSlot* slot : plans.slots_for(problem))
    if (const PlanState* plan = make(*slot, plans, code)) return plan->executable.load_library();
}

/// A cell may join sizes that have only this slot in common, so where it fails they get the edge's plan, which is made
/// for the whole bucket.
const PlanState* PlanStore::plan_of_cell(PlanSlot& slot, BucketPlans& plans, Code code, Try when) {
  const PlanState* const plan = make(slot, plans, code, when);
  if (plan == nullptr && slot.settled.load(std::memory_order_acquire)) return plans.edge;
  return plan;
}

const PlanState& PlanStore::make_at(BucketPlans& plans, const Problem& problem) {
  if (PlanSlot* const slot = plans.sizes->unmade_at(problem)) {
    const PlanState* const plan = plan_of_cell(*slot, plans, Code::beside, Try::if_due);
    if (plan == nullptr) return *plans.edge;
    plans.sizes->set(problem, plan);
  }
  return plans.edge->made_at(problem);
}

void PlanStore::make_all_sizes(BucketPlans& plans) {
  plans.sizes->make_all([&](PlanSlot& slot) { return plan_of_cell(slot, plans, Code::any, Try::now); });
}

}  // namespace kiln::plan
