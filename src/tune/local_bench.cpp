#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "tune/bench.hpp"
#include "tune/measure.hpp"
#include "tune/verification_case.hpp"

namespace kiln::tune {
namespace {

class LocalBench final : public Bench {
 public:
  LocalBench(const BenchSettings& settings, Cubins& cubins)
      : settings_(settings), stopwatch_(settings.device.facts, settings.regime, settings.arch, cubins) {
    const Problem low = manifest::low_corner(settings.op, settings.bucket);
    const auto seed = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    Placement on_device;
    on_device.bound = low;
    if (const auto lengths = shorter(low)) add_case(*lengths, cubins, seed + 2, on_device);
    if (!(low == settings.bucket)) add_case(low, cubins, seed, {});
    add_case(settings.bucket, cubins, seed + 1, {});
    prepared_ns_ = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begun_).count();
  }

  void set_lengths(std::vector<Problem> lengths) override { lengths_ = std::move(lengths); }

  Admission admit(std::size_t candidate, const Trial& trial) override {
    Admission admission;
    const std::string name =
        fmt::format("{} {}", trial.implementation.name, manifest::to_string(trial.implementation, trial.config));
    try {
      const auto frame =
          manifest::make_frame(settings_.op, &trial.implementation, trial.at, settings_.device.facts, trial.config);
      auto live = std::make_unique<Live>(jit::Executable(settings_.op, trial.implementation, frame, trial.cubin));
      const jit::Resources resources = live->executable.resources();
      admission.registers = resources.registers;
      admission.spill_bytes = resources.spill_bytes;
      if (!is_right(admission, *live)) return admission;
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

  template <class Measure>
  std::vector<Samples> take_legal(std::span<const Point> points, const Measure& measure) {
    std::vector<Samples> result(points.size());
    std::vector<Point> legal;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (!cases_.back().admits_at(lengths_.at(points[i].length), live_.at(points[i].candidate)->executable)) continue;
      legal.push_back(points[i]);
      places.push_back(i);
    }
    if (legal.empty()) return result;
    std::vector<Samples> taken = take(legal, measure);
    for (std::size_t i = 0; i < legal.size(); ++i) result[places[i]] = std::move(taken[i]);
    return result;
  }

  template <class Measure>
  std::vector<Samples> take(std::span<const Point> points, const Measure& measure) {
    std::vector<Launch> launches;
    for (const Point& point : points)
      launches.emplace_back(
          [this, &at = lengths_.at(point.length), live = live_.at(point.candidate).get()](CUstream stream) {
            cases_.back().launch_at(at, live->executable, live->workspace, stream);
          });
    std::vector<Samples> result(points.size());
    try {
      auto taken = measure(launches);
      for (std::size_t i = 0; i < result.size(); ++i) result[i].ns = std::move(taken[i]);
    } catch (const Error& error) {
      std::string reason = reason_for_rejecting(error, fmt::format("one of {}", points.size()));
      if (points.size() == 1) {
        result.front().failure = std::move(reason);
        return result;
      }
      // Samples each point alone to find out which one failed.
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = std::move(take(points.subspan(i, 1), measure).front());
    }
    return result;
  }

  /// Returns about half of each length that may be on the device, so that whole blocks lie past it. Nothing when no length can be halved.
  [[nodiscard]] std::optional<Problem> shorter(const Problem& bound) const {
    Problem lengths = bound;
    for (std::size_t i = 0; i < settings_.op.axes.size(); ++i)
      if (const manifest::Axis& axis = settings_.op.axes[i]; axis.on_device)
        lengths.axes[i] = std::max(axis.minimum, (bound.axes[i] + 1) / 2);
    return lengths == bound ? std::nullopt : std::optional(lengths);
  }

  void add_case(const Problem& problem, Cubins& cubins, std::uint64_t seed, const Placement& placement) {
    cases_.emplace_back(settings_.op, problem, settings_.device.facts, settings_.arch, cubins, seed, stream_.handle(),
                        placement);
  }

  bool is_right(Admission& admission, Live& live) {
    if (std::ranges::none_of(cases_, [&](const VerificationCase& each) { return each.admits(live.executable); })) {
      admission.verdict = store::Verdict::launch_failed;
      admission.reason = "it is not legal at either end of the bucket, where candidates are verified";
      return false;
    }
    for (VerificationCase& each : cases_) {
      const Check check = each.verify(live.executable, live.workspace, stream_.handle());
      if (check.right) continue;
      admission.verdict = store::Verdict::wrong_result;
      admission.reason = fmt::format(
          "at {}{}: {}", manifest::display_text(settings_.op, each.problem()),
          each.launched() == each.problem()
              ? ""
              : fmt::format(" on the device, launched for {}", manifest::display_text(settings_.op, each.launched())),
          check.reason);
      return false;
    }
    return true;
  }

  /// Returns the reason for which the candidate is rejected. Throws Error(driver_failed) when its launch broke the context, after which no
  /// result can be trusted, and rethrows errors that are not the candidate's.
  [[nodiscard]] std::string reason_for_rejecting(const Error& error, const std::string& who) const {
    if (error.kind() == ErrorKind::bad_manifest || error.kind() == ErrorKind::bad_input) return error.what();
    if (error.kind() != ErrorKind::driver_failed) throw error;
    if (context_lives()) return error.what();
    throw Error(ErrorKind::driver_failed,
                fmt::format("candidate {} of {} broke the device context: {}", who, settings_.op.name, error.what()));
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
  std::vector<Problem> lengths_;
  Stopwatch stopwatch_;
  cuda::Stream stream_;
  std::vector<VerificationCase> cases_;  // the last is at the upper edge
  std::map<std::size_t, std::unique_ptr<Live>> live_;
};

}  // namespace

std::unique_ptr<Bench> local_bench(const BenchSettings& settings, Cubins& cubins) {
  return std::make_unique<LocalBench>(settings, cubins);
}

}  // namespace kiln::tune
