#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "answer/timed_sizes.hpp"
#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "team/exchange.hpp"
#include "tune/bench.hpp"
#include "tune/measure.hpp"
#include "tune/preparation.hpp"
#include "tune/team_barrier.hpp"
#include "tune/verification_case.hpp"

namespace kiln::tune {
namespace {

class LocalBench final : public Bench {
 public:
  LocalBench(const BenchSettings& settings, answer::Cubins& cubins)
      : settings_(settings),
        stopwatch_(*settings.bucket.device, settings.bucket.regime, settings.arch, cubins),
        barrier_(settings.member == nullptr ? nullptr
                                            : std::make_unique<TeamBarrier>(*settings.member, settings.arch, cubins)) {
    if (barrier_) stopwatch_.before_each([this](CUstream stream) { barrier_->enqueue(stream); });
    const Problem low = manifest::low_corner(*settings.bucket.op, settings.bucket.edge);
    const std::vector<std::size_t> cases = cases_timed_last(*settings.bucket.op);
    std::size_t next = 0;  // lengths on the device and corners take the cases in turn
    Placement on_device;
    on_device.bound = low;
    for (const Problem& lengths : manifest::shorter_lengths(*settings.bucket.op, low)) {
      on_device.prepare_case = cases[next++ % cases.size()];
      add_case(lengths, cubins, on_device);
    }
    for (const Problem& corner : manifest::corners(*settings.bucket.op, settings.bucket.edge))
      add_case(corner, cubins, prepared_by(cases[next++ % cases.size()]));
    // Inputs that are not timed are verified where tensors are small.
    for (const std::size_t each : cases)
      if (each != cases.back() || !(low == settings.bucket.edge)) add_case(low, cubins, prepared_by(each));
    add_case(settings.bucket.edge, cubins, prepared_by(cases.back()));
    prepared_ns_ = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begun_).count();
  }

  void set_sizes(std::vector<Problem> sizes) override { sizes_ = std::move(sizes); }

  Admission admit(std::size_t candidate, const Trial& trial) override {
    Admission admission;
    const std::string name = trial.variant.name();
    try {
      const auto frame = trial.variant.frame(settings_.bucket, trial.at);
      auto live = load_on_all_ranks([&] { return std::make_unique<Live>(load(candidate, trial, frame)); });
      const jit::Resources resources = live->executable.resources();
      admission.registers = resources.registers;
      admission.spill_bytes = resources.spill_bytes;
      if (!is_right(admission, *live)) return admission;
      if (const std::string fault = fault_text(); !fault.empty()) {
        admission.reason = fault;
        admission.verdict = store::Verdict::launch_failed;
        return admission;
      }
      admission.verdict = store::Verdict::ok;
      live_.insert_or_assign(candidate, std::move(live));
    } catch (const Error& error) {
      admission.reason = reason_for_rejecting(error, name);
      admission.verdict = store::Verdict::launch_failed;
    }
    return admission;
  }

  std::vector<Samples> sample(std::span<const Point> points, std::int64_t rounds) override {
    return take_legal(points, [&](std::span<const Launch> launches) {
      return stopwatch_.sample(launches, rounds, stream_.handle());
    });
  }

  std::vector<Samples> sample_chains(std::span<const Point> points, std::int64_t rounds) override {
    return take_legal(points, [&](std::span<const Launch> launches) {
      return stopwatch_.sample_chains(launches, rounds, stream_.handle());
    });
  }

  void drop(std::size_t candidate) override { live_.erase(candidate); }

  [[nodiscard]] double prepared_ns() const override { return prepared_ns_; }

 private:
  struct Live {
    explicit Live(jit::Executable loaded) : executable(std::move(loaded)), workspace(executable) {}
    jit::Executable executable;
    TrialWorkspace workspace;
  };

  [[nodiscard]] jit::Executable load(std::size_t candidate, const Trial& trial,
                                     std::span<const std::int64_t> frame) const {
    if (settings_.member == nullptr)
      return {*settings_.bucket.op, *trial.variant.implementation, frame, trial.cubin, settings_.team};
    const team::TeamBinding binding = settings_.member->trial_binding(static_cast<std::uint32_t>(candidate));
    return {*settings_.bucket.op, *trial.variant.implementation, frame, trial.cubin, &binding};
  }

  /// Collective, of a team. Throws the error of this rank, or that of the first rank that has one: a kernel that waits
  /// for a rank which cannot launch would wait for its time-out, and NCCL has none.
  template <class Load>
  [[nodiscard]] std::unique_ptr<Live> load_on_all_ranks(const Load& load_one) const {
    if (settings_.member == nullptr) return load_one();
    std::unique_ptr<Live> live;
    std::exception_ptr failed;
    std::string why;
    try {
      live = load_one();
    } catch (const std::exception& error) {
      failed = std::current_exception();
      why = error.what();
    }
    const std::vector<std::string> reasons = team::gather_texts(settings_.member->rendezvous(), why);
    if (failed) std::rethrow_exception(failed);
    for (std::size_t rank = 0; rank < reasons.size(); ++rank)
      if (!reasons[rank].empty())
        throw Error(ErrorKind::bad_input, fmt::format("rank {} cannot launch it: {}", rank, reasons[rank]));
    return live;
  }

  /// Why a launch of this rank ended without the others' data; empty where none did.
  [[nodiscard]] std::string fault_text() const {
    const auto fault = settings_.member == nullptr ? std::nullopt : settings_.member->fault();
    return fault ? team::text_of(*fault, settings_.member->rank(), team::Member::trial_timeout) : std::string();
  }

  template <class Measure>
  std::vector<Samples> take_legal(std::span<const Point> points, const Measure& measure) {
    std::vector<Samples> result(points.size());
    std::vector<Point> legal;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (!cases_.back().admits_at(sizes_.at(points[i].size), live_.at(points[i].candidate)->executable)) continue;
      legal.push_back(points[i]);
      places.push_back(i);
    }
    if (legal.empty()) return result;
    std::vector<Samples> taken = take(legal, measure);
    for (std::size_t i = 0; i < legal.size(); ++i) result[places[i]] = std::move(taken[i]);
    return result;
  }

  static Placement prepared_by(std::size_t prepare_case) {
    Placement placement;
    placement.prepare_case = prepare_case;
    return placement;
  }

  /// Takes samples with inputs that are prepared for each point's sizes. Points of one size take turns. A sample is the
  /// mean over the timed cases.
  template <class Measure>
  std::vector<Samples> take(std::span<const Point> points, const Measure& measure) {
    if (!settings_.bucket.op->prepare) return take_prepared(points, measure);
    std::map<std::size_t, std::vector<std::size_t>> by_size;  // places in `points`
    for (std::size_t i = 0; i < points.size(); ++i) by_size[points[i].size].push_back(i);
    std::vector<Samples> result(points.size());
    for (const auto& [size, places] : by_size)
      for (const std::size_t prepare_case : settings_.bucket.op->prepare->timed) {
        std::vector<Point> now;
        for (const std::size_t place : places)
          if (result[place].failure.empty()) now.push_back(points[place]);
        if (now.empty()) break;
        cases_.back().prepare_at(sizes_.at(size), prepare_case, stream_.handle());
        std::vector<Samples> taken = take_prepared(now, measure);
        std::size_t next = 0;
        for (const std::size_t place : places)
          if (result[place].failure.empty()) add_share(result[place], std::move(taken[next++]));
      }
    return result;
  }

  /// Adds a timed case's samples to those of the others, whose sum of shares is their mean.
  void add_share(Samples& all, Samples some) const {
    if (!some.failure.empty()) {
      all = std::move(some);
      all.ns.clear();
      return;
    }
    const auto share = 1.0 / static_cast<double>(settings_.bucket.op->prepare->timed.size());
    all.ns.resize(some.ns.size(), 0.0);
    for (std::size_t i = 0; i < some.ns.size(); ++i)  // a negative time must not vanish in a sum
      all.ns[i] += is_time(some.ns[i]) ? share * some.ns[i] : std::numeric_limits<double>::quiet_NaN();
  }

  template <class Measure>
  std::vector<Samples> take_prepared(std::span<const Point> points, const Measure& measure) {
    std::vector<Launch> launches;
    for (const Point& point : points)
      launches.emplace_back(
          [this, &at = sizes_.at(point.size), live = live_.at(point.candidate).get()](CUstream stream) {
            cases_.back().launch_at(at, live->executable, live->workspace, stream);
          });
    std::vector<Samples> result(points.size());
    try {
      auto taken = measure(launches);
      const std::string fault = fault_text();
      for (std::size_t i = 0; i < result.size(); ++i)
        if (fault.empty())
          result[i].ns = std::move(taken[i]);
        else
          result[i].failure = fault;
    } catch (const Error& error) {
      std::string reason = reason_for_rejecting(error, fmt::format("one of {}", points.size()));
      if (points.size() == 1 || settings_.member != nullptr) {  // the other ranks would not launch again
        for (Samples& each : result) each.failure = reason;
        return result;
      }
      // Samples each point alone to find out which one failed.
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = std::move(take_prepared(points.subspan(i, 1), measure).front());
    }
    return result;
  }

  void add_case(const Problem& problem, answer::Cubins& cubins, Placement placement) {
    if (settings_.team != nullptr) placement.rank = settings_.team->rank;
    cases_.emplace_back(settings_.bucket, problem, settings_.arch, cubins, seed_++, stream_.handle(), placement);
  }

  bool is_right(Admission& admission, Live& live) {
    if (std::ranges::none_of(cases_, [&](const VerificationCase& each) { return each.admits(live.executable); })) {
      admission.verdict = store::Verdict::launch_failed;
      admission.reason =
          "it is legal at none of the sizes where candidates are verified: the bucket's ends and corners";
      return false;
    }
    bool right = true;
    for (VerificationCase& each : cases_) {
      const Check check = each.verify(live.executable, live.workspace, stream_.handle());
      if (check.right || !right) continue;
      admission.verdict = store::Verdict::wrong_result;
      admission.reason = fmt::format("at {}{}{}: {}", manifest::display_text(*settings_.bucket.op, each.problem()),
                                     inputs_text(*settings_.bucket.op, each.prepare_case()),
                                     each.launched() == each.problem()
                                         ? ""
                                         : fmt::format(" on the device, launched for {}",
                                                       manifest::display_text(*settings_.bucket.op, each.launched())),
                                     check.reason);
      right = false;
      if (!settings_.bucket.op->is_of_team()) break;  // the other ranks of a team launch every case
    }
    return right;
  }

  /// Returns the reason for which the candidate is rejected. Throws Error(driver_failed) when its launch broke the
  /// context, after which no result can be trusted, and rethrows errors that are not the candidate's.
  [[nodiscard]] std::string reason_for_rejecting(const Error& error, const std::string& who) const {
    if (error.kind() == ErrorKind::bad_manifest || error.kind() == ErrorKind::bad_input) return error.what();
    if (error.kind() != ErrorKind::driver_failed) throw error;
    if (context_lives()) return error.what();
    throw Error(ErrorKind::driver_failed, fmt::format("candidate {} of {} broke the device context: {}", who,
                                                      settings_.bucket.op->name, error.what()));
  }

  [[nodiscard]] bool context_lives() const {
    try {
      stream_.synchronize();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  double prepared_ns_ = 0;
  BenchSettings settings_;
  std::uint64_t seed_ =
      settings_.seed.value_or(static_cast<std::uint64_t>(begun_.time_since_epoch().count()));  // of the next case
  std::vector<Problem> sizes_;
  Stopwatch stopwatch_;
  std::unique_ptr<TeamBarrier> barrier_;  // null for an op of one GPU
  cuda::Stream stream_;
  std::vector<VerificationCase> cases_;  // the last is at the upper edge
  std::map<std::size_t, std::unique_ptr<Live>> live_;
};

}  // namespace

bool is_time(double ns) noexcept { return std::isfinite(ns) && ns >= 0; }

void keep_times(Samples& samples) {
  samples.dropped += static_cast<std::int64_t>(std::erase_if(samples.ns, [](double ns) { return !is_time(ns); }));
}

std::string no_times_text(std::int64_t dropped) {
  return fmt::format("the driver gave no time of its {} runs, but NaN, infinite or negative ones", dropped);
}

std::unique_ptr<Bench> local_bench(const BenchSettings& settings, answer::Cubins& cubins) {
  return std::make_unique<LocalBench>(settings, cubins);
}

}  // namespace kiln::tune
