#include <fmt/format.h>

#include <chrono>
#include <vector>

#include "jit/executable.hpp"
#include "kiln/error.hpp"
#include "tune/bench.hpp"
#include "tune/verification_case.hpp"

namespace kiln::tune {
namespace {

class LocalBench final : public Bench {
 public:
  LocalBench(const BenchSettings& settings, Cubins& cubins)
      : settings_(settings), stopwatch_(settings.device.facts, settings.regime) {
    const Problem low = spec::low_corner(settings.op, settings.bucket);
    const auto seed = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    if (!(low == settings.bucket)) add_case(low, cubins, seed);
    add_case(settings.bucket, cubins, seed + 1);
  }

  TrialResult try_one(const Trial& trial) override {
    TrialResult result;
    try {
      const auto frame =
          spec::make_frame(settings_.op, &trial.implementation, settings_.bucket, settings_.device.facts, trial.config);
      const jit::Executable executable(settings_.op, trial.implementation, frame, trial.cubin);
      const jit::Resources resources = executable.resources();
      result.registers = resources.registers;
      result.spill_bytes = resources.spill_bytes;
      if (!is_right(result, executable)) return result;
      VerificationCase& measured = cases_.back();
      result.cost = stopwatch_.measure([&](CUstream stream) { measured.launch(executable, stream); }, stream_.handle(),
                                       settings_.limits, trial.best_ns);
      result.verdict = store::Verdict::ok;
    } catch (const Error& error) {
      reject(trial, result, error);
    }
    return result;
  }

 private:
  void add_case(const Problem& problem, Cubins& cubins, std::uint64_t seed) {
    cases_.emplace_back(settings_.op, problem, settings_.device.facts, settings_.arch, cubins, seed, stream_.handle());
  }

  bool is_right(TrialResult& result, const jit::Executable& executable) {
    for (VerificationCase& each : cases_) {
      const Check check = each.verify(executable, stream_.handle());
      if (check.right) continue;
      result.verdict = store::Verdict::wrong_result;
      result.reason = fmt::format("at {}: {}", spec::to_string(settings_.op, each.problem()), check.reason);
      return false;
    }
    return true;
  }

  /// A candidate that does not load rejects itself. A launch that broke the context ends the bench: nothing after it could be
  /// trusted.
  void reject(const Trial& trial, TrialResult& result, const Error& error) const {
    result.cost = {};
    result.reason = error.what();
    result.verdict = store::Verdict::launch_failed;
    if (error.kind() == ErrorKind::bad_manifest || error.kind() == ErrorKind::bad_input) return;
    if (error.kind() != ErrorKind::driver_failed) throw error;
    if (context_lives()) return;
    throw Error(ErrorKind::driver_failed,
                fmt::format("candidate {} {} of {} broke the device context: {}", trial.implementation.name,
                            spec::to_string(trial.implementation, trial.config), settings_.op.name, error.what()));
  }

  [[nodiscard]] bool context_lives() const {
    try {
      stream_.synchronize();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  BenchSettings settings_;
  Stopwatch stopwatch_;
  cuda::Stream stream_;
  std::vector<VerificationCase> cases_;  // the last is the upper edge
};

}  // namespace

std::unique_ptr<Bench> local_bench(const BenchSettings& settings, Cubins& cubins) {
  return std::make_unique<LocalBench>(settings, cubins);
}

}  // namespace kiln::tune
