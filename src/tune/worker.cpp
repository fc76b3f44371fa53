#include "tune/worker.hpp"

#include <fmt/format.h>

#include <optional>

#include "kiln/error.hpp"
#include "process/child.hpp"
#include "process/message.hpp"
#include "tune/deploy.hpp"
#include "tune/worker_messages.hpp"

namespace kiln::tune {

using process::Channel;

struct Worker::State {
  State(std::filesystem::path found, WorkerPatience chosen) : program(std::move(found)), patience(chosen) {}

  /// Ends it, and says how it had ended if it had.
  std::string stop() {
    std::string how = child ? child->stop() : std::string();
    child.reset();
    has_bucket = false;
    return how;
  }

  std::filesystem::path program;
  WorkerPatience patience;
  std::optional<process::Child> child;
  bool has_bucket = false;
};

/// One bucket in the worker, and in the workers that follow it.
class RemoteBench final : public Bench {
 public:
  RemoteBench(Worker::State& worker, const BenchSettings& settings, const std::vector<store::CubinRow>& cubins)
      : worker_(worker), op_(settings.op.name), begin_(to_json(settings, cubins)) {
    worker_.has_bucket = false;
    begin();
  }

  TrialResult try_one(const Trial& trial) override {
    if (!worker_.has_bucket) begin();
    nlohmann::json answer;
    const auto state = worker_.child->ask(to_json(trial), answer, worker_.patience.trial);
    if (state == Channel::State::received) {
      try {
        process::rethrow(answer);
        return result_from_json(answer);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::driver_failed) throw;
        worker_.stop();
        return rejected(error.what());
      } catch (const nlohmann::json::exception& error) {
        worker_.stop();
        return rejected(fmt::format("the worker's answer cannot be read: {}", error.what()));
      }
    }
    const std::string how = worker_.stop();
    if (state == Channel::State::late)
      return rejected(fmt::format("it was not done after {} s, and was stopped",
                                  std::chrono::duration<double>(worker_.patience.trial).count()));
    return rejected(fmt::format("the worker that tried it {}", how));
  }

 private:
  static TrialResult rejected(std::string reason) {
    TrialResult result;
    result.verdict = store::Verdict::launch_failed;
    result.reason = std::move(reason);
    return result;
  }

  /// In the worker that there is; in a new one if there is none, or if it died since.
  void begin() {
    if (worker_.child && worker_.child->gone()) worker_.stop();
    if (!worker_.child) worker_.child.emplace(worker_.program);
    nlohmann::json answer;
    const auto state = worker_.child->ask(begin_, answer, worker_.patience.begin);
    if (state == Channel::State::received) {
      try {
        process::rethrow(answer);
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::driver_failed) worker_.stop();
        throw;
      }
      worker_.has_bucket = answer.contains("ready");
      if (worker_.has_bucket) return;
    }
    const std::string how = worker_.stop();
    throw Error(ErrorKind::driver_failed,
                fmt::format("{}: the worker {} {} before it was ready: it fills tensors and runs the reference first",
                            op_, worker_.program.string(), how));
  }

  Worker::State& worker_;
  std::string op_;
  nlohmann::json begin_;
};

Worker::Worker(std::filesystem::path program, WorkerPatience patience)
    : state_(std::make_unique<State>(std::move(program), patience)) {}

Worker::~Worker() = default;

std::unique_ptr<Bench> Worker::bench(const BenchSettings& settings, Cubins& cubins) {
  std::vector<store::CubinRow> rows;
  for (const jit::Specialisation& needed :
       verification(settings.op, settings.bucket, settings.device.facts, settings.arch))
    rows.push_back(to_row(needed, cubins.get(needed)));
  return std::make_unique<RemoteBench>(*state_, settings, rows);
}

}  // namespace kiln::tune
