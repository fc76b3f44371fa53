// What a tune costs and what it finds: racing, twice, and exhaustive search over the same buckets, each from nothing; then the winners
// side by side on fresh data.
//
//   bench_tuning OP axis=value... [, OP axis=value...]...
//
// One JSON object a tune of all buckets: seconds of wall clock, seconds in which the device was kept, compiles, candidates; one a bucket:
// how much slower the racing winner is than the best of all winners, and whether the two racing tunes agree.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <set>

#include "engine/state.hpp"
#include "tune/deploy.hpp"
#include "tune/tuner.hpp"

namespace {

using kiln::tune::BenchSettings;
using Clock = std::chrono::steady_clock;

struct Asked {
  std::string op;
  std::vector<kiln::spec::Setting> settings;
};

std::vector<Asked> parse(int argc, char** argv) {
  std::vector<Asked> asked;
  bool new_problem = true;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    if (word == ",") {
      new_problem = true;
    } else if (new_problem) {
      asked.push_back({word, {}});
      new_problem = false;
    } else if (equals != std::string::npos) {
      asked.back().settings.push_back({word.substr(0, equals), word.substr(equals + 1)});
    } else {
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("'{}' is not axis=value", word));
    }
  }
  return asked;
}

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

const kiln::spec::Op& op_named(const kiln::engine::State& state, const std::string& name) {
  return state.ops[state.ops.find(name).value()];
}

/// One tune of every bucket, in an engine of its own that knows no file.
class Tune {
 public:
  Tune(const std::string& name, kiln::Strategy strategy, std::span<const Asked> asked) : state_(options(strategy)) {
    const kiln::cuda::Context::Scope scope(state_.context);
    const auto begun = Clock::now();
    double device_seconds = 0;
    std::int64_t trials = 0, space = 0;
    for (const Asked& each : asked) {
      const kiln::spec::Op& op = op_named(state_, each.op);
      const kiln::Problem bucket = kiln::spec::bucket_of(op, kiln::spec::make_problem(op, each.settings));
      kiln::tune::TuneRequest request = state_.tune_request(op, bucket);
      request.on_event = [&](const kiln::TuneEvent& event) {
        if (event.kind == kiln::TuneEvent::Kind::begun) space += event.total;
      };
      request.pace = [&](double ns) { device_seconds += ns * 1e-9; };
      auto result = kiln::tune::tune_bucket(request, state_.cubins);
      kiln::tune::publish(request, result, state_.cubins);
      trials += static_cast<std::int64_t>(result.record.candidates.size());
      results_.push_back(std::move(result));
    }
    fmt::print(R"({{"tune":"{}","buckets":{},"wall_s":{:.2f},"device_s":{:.2f},"compiles":{},"trials":{},"space":{}}})"
               "\n",
               name, asked.size(), seconds_since(begun), device_seconds, state_.cubins.compiled(), trials, space);
    std::fflush(stdout);
  }

  [[nodiscard]] const kiln::tune::TuneResult& result(std::size_t bucket) const { return results_[bucket]; }
  [[nodiscard]] kiln::engine::State& state() noexcept { return state_; }

 private:
  static kiln::Options options(kiln::Strategy strategy) {
    kiln::Options options;
    options.overlay = "";
    options.search.strategy = strategy;
    return options;
  }

  kiln::engine::State state_;
  std::vector<kiln::tune::TuneResult> results_;
};

/// Winners of one bucket, and others that came close, in turns on tensors with new values.
class Comparison {
 public:
  Comparison(kiln::engine::State& state, const kiln::spec::Op& op, const kiln::Problem& bucket)
      : op_(op),
        bench_(state.worker->bench(BenchSettings{op, bucket, state.context.info(), kiln::Regime::cold_l2, state.arch()},
                                   state.cubins)) {}

  /// The number under which it takes part.
  std::size_t add(const kiln::tune::TuneResult& result) {
    const auto& record = result.record;
    const auto known = names_.find(record.implementation + record.config);
    if (known != names_.end()) return known->second;
    const std::size_t id = names_.size();
    names_.emplace(record.implementation + record.config, id);
    const auto& implementation = *op_.find(record.implementation);
    const auto config = *kiln::spec::parse_config(implementation, record.config);
    const auto entrance = bench_->admit(id, {implementation, config, result.cubin.cubin});
    if (entrance.verdict != kiln::store::Verdict::ok)
      throw kiln::Error(kiln::ErrorKind::driver_failed, entrance.reason);
    return id;
  }
  void run() {
    std::vector<std::size_t> ids(names_.size());
    std::iota(ids.begin(), ids.end(), 0);
    constexpr std::int64_t rounds = 41;
    samples_ = bench_->sample(ids, rounds);
  }
  [[nodiscard]] kiln::tune::Cost ratio(std::size_t a, std::size_t b) const {
    return kiln::tune::ratio(samples_[a].ns, samples_[b].ns);
  }

 private:
  const kiln::spec::Op& op_;
  std::unique_ptr<kiln::tune::Bench> bench_;
  std::map<std::string, std::size_t> names_;
  std::vector<kiln::tune::Samples> samples_;
};

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(share * static_cast<double>(values.size())))];
}

void compare(std::span<const Asked> asked, Tune& first, const Tune& second, const Tune& full) {
  kiln::engine::State& state = first.state();
  const kiln::cuda::Context::Scope scope(state.context);
  std::vector<double> regrets, speedups;
  int same = 0, tied = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const kiln::spec::Op& op = op_named(state, asked[i].op);
    const kiln::Problem bucket = kiln::spec::bucket_of(op, kiln::spec::make_problem(op, asked[i].settings));
    Comparison comparison(state, op, bucket);
    const std::size_t a = comparison.add(first.result(i)), b = comparison.add(second.result(i)),
                      c = comparison.add(full.result(i));
    comparison.run();
    const double best = std::min({1.0, comparison.ratio(b, a).median_ns, comparison.ratio(c, a).median_ns});
    const double regret = 1 / best - 1;
    const kiln::tune::Cost against = comparison.ratio(b, a);
    const bool agree = a == b, close = against.low_ns <= 1.01 && against.high_ns >= 0.99;
    same += agree ? 1 : 0;
    tied += !agree && close ? 1 : 0;
    regrets.push_back(regret);
    speedups.push_back(comparison.ratio(a, c).median_ns);
    fmt::print(
        R"({{"bucket":"{} {}","racing":"{}","again":"{}","exhaustive":"{}","trials":{},"regret":{:.4f},"against_exhaustive":{:.4f},"agreement":"{}"}})"
        "\n",
        op.name, kiln::spec::to_string(op, bucket), first.result(i).record.config, second.result(i).record.config,
        full.result(i).record.config, first.result(i).record.candidates.size(), regret, speedups.back(),
        agree ? "same" : (close ? "tied" : "different"));
  }
  fmt::print(
      R"({{"buckets":{},"regret_median":{:.4f},"regret_p95":{:.4f},"regret_worst":{:.4f},"against_exhaustive_median":{:.4f},"same":{},"tied":{},"different":{}}})"
      "\n",
      asked.size(), quantile(regrets, 0.5), quantile(regrets, 0.95), quantile(regrets, 1), quantile(speedups, 0.5),
      same, tied, static_cast<int>(asked.size()) - same - tied);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<Asked> asked = parse(argc, argv);
  if (asked.empty())
    throw kiln::Error(kiln::ErrorKind::bad_input, "bench_tuning OP axis=value... [, OP axis=value...]...");
  Tune first("racing", kiln::Strategy::racing, asked);
  const Tune second("racing again", kiln::Strategy::racing, asked);
  const Tune full("exhaustive", kiln::Strategy::exhaustive, asked);
  compare(asked, first, second, full);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_tuning: {}\n", error.what());
  return 1;
}
