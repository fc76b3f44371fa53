#include "tune/trials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kiln/error.hpp"
#include "tune/verification_code.hpp"

namespace kiln::tune {
namespace {

constexpr double longest_round_ns = 10e6;  // expected time of a round of points that are sampled together
constexpr std::chrono::milliseconds idle_after{20};
constexpr std::int64_t warm_runs = 2;
constexpr std::int64_t least_again = 3;  // rounds

}  // namespace

Trials::Trials(const TuneRequest& request, Machine& machine, std::function<void()> check_stop)
    : request_(request), machine_(machine), check_stop_(std::move(check_stop)), preparing_(begin_bench()) {}

std::future<std::unique_ptr<Bench>> Trials::begin_bench() const {
  for (const jit::Specialisation& needed : verification(request_.bucket, request_.arch)) machine_.prefetch(needed);
  const auto begin = [this] { return machine_.bench(); };
  // With both, deferred where the system refuses a thread.
  const auto in_thread = std::launch::async | std::launch::deferred;
  return std::async(request_.worker != nullptr ? in_thread : std::launch::deferred, begin);
}

void Trials::begin() {
  bench_ = preparing_.get();
  // A worker's start and its compiles do not use the device, and are not counted.
  if (request_.pace) request_.pace(bench_->prepared_ns());
}

void Trials::paced(const std::function<void()>& work) const {
  const auto begun = Clock::now();
  work();
  if (request_.pace) request_.pace(std::chrono::duration<double, std::nano>(Clock::now() - begun).count());
}

/// Returns nothing when the candidate does not compile. Any failure but a missing NVRTC or an interruption rejects this
/// candidate alone.
std::optional<answer::KeyedCubin> Trials::compile(const Candidate& of, Admission& admission) const {
  admission.verdict = store::Verdict::compile_failed;
  try {
    return machine_.compiled(of.specialisation);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::no_nvrtc || error.kind() == ErrorKind::interrupted) throw;
    admission.reason = error.what();
  } catch (const std::exception& error) {
    admission.reason = fmt::format("compiling {}: {}", of.specialisation.label, error.what());
  }
  return std::nullopt;
}

Admission Trials::bring_in(std::size_t candidate, const Candidate& of) {
  check_stop_();
  Admission admission;
  if (const auto cubin = compile(of, admission))
    paced([&] { admission = bench_->admit(candidate, {of, cubin->cubin, of.at}); });
  if (admission.verdict == store::Verdict::ok) loaded_.insert(candidate);
  return admission;
}

void Trials::drop(std::size_t candidate) {
  if (loaded_.erase(candidate) > 0) bench_->drop(candidate);
}

void Trials::drop_if(const std::function<bool(std::size_t candidate)>& goes) {
  std::erase_if(loaded_, [&](std::size_t candidate) {
    const bool gone = goes(candidate);
    if (gone) bench_->drop(candidate);
    return gone;
  });
}

std::vector<Samples> Trials::sample(std::span<const Point> points, std::int64_t rounds,
                                    const std::function<double(Point)>& expected_ns) {
  std::vector<Samples> all;
  warm_up(points.front());
  for (std::size_t begin = 0; begin < points.size();) {
    std::size_t end = begin;
    double round_ns = 0;
    while (end < points.size() && (round_ns < longest_round_ns || points[end].size == points[end - 1].size))
      round_ns += expected_ns(points[end++]);
    for (Samples& each : sample_some(points.subspan(begin, end - begin), rounds, round_ns))
      all.push_back(std::move(each));
    begin = end;
  }
  sampled_ = Clock::now();
  return all;
}

std::vector<Samples> Trials::sample_some(std::span<const Point> points, std::int64_t rounds, double round_ns) {
  std::vector<Samples> all(points.size());
  in_batches(rounds, round_ns, [&](std::int64_t now) {
    check_stop_();
    std::vector<Samples> some;
    paced([&] { some = bench_->sample(points, now); });
    BatchTime busy;
    bool failed = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      keep_times(some[i]);
      all[i].dropped += some[i].dropped;
      all[i].ns.insert(all[i].ns.end(), some[i].ns.begin(), some[i].ns.end());
      all[i].failure = some[i].failure;
      failed = failed || !some[i].failure.empty();
      busy.add(some[i].ns);
    }
    if (!bench_->needs_rest()) busy.ns = 0;
    return failed ? BatchTime() : busy;
  });
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].ns.empty() && all[i].failure.empty() && all[i].dropped > 0) sample_again(points[i], rounds, all[i]);
  return all;
}

/// Of a point all of whose times were dropped, which may have been one.
void Trials::sample_again(Point point, std::int64_t rounds, Samples& samples) {
  check_stop_();
  Samples more;
  paced([&] { more = std::move(bench_->sample({&point, 1}, std::max(rounds, least_again)).front()); });
  more.dropped = samples.dropped;
  keep_times(more);
  samples = std::move(more);
  if (samples.ns.empty() && samples.failure.empty()) samples.failure = no_times_text(samples.dropped);
}

/// Runs a point unmeasured if the device was idle, since its first runs are slow.
void Trials::warm_up(Point point) {
  if (Clock::now() - sampled_ > idle_after) bench_->warm_up(point, warm_runs);
}

}  // namespace kiln::tune
