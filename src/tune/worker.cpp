#include "tune/worker.hpp"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "kiln/error.hpp"
#include "process/child.hpp"
#include "process/message.hpp"
#include "tune/deploy.hpp"
#include "tune/worker_messages.hpp"

namespace kiln::tune {

using process::Channel;

struct Worker::State {
  State(std::filesystem::path found, WorkerTimeouts chosen) : program(std::move(found)), patience(chosen) {}

  /// Ends the process, and returns how it had ended if it had.
  std::string stop() {
    std::string how = child ? child->stop() : std::string();
    child.reset();
    has_bucket = false;
    return how;
  }

  std::filesystem::path program;
  WorkerTimeouts patience;
  std::optional<process::Child> child;
  bool has_bucket = false;
};

/// A bench whose bucket lies in the worker, and in the workers that replace it.
class RemoteBench final : public Bench {
 public:
  RemoteBench(Worker::State& worker, const BenchSettings& settings, const std::vector<store::CubinRow>& cubins)
      : worker_(worker), op_(settings.op.name), begin_(to_json(settings, cubins)) {
    worker_.has_bucket = false;
    begin();
  }

  void set_lengths(std::vector<Problem> lengths) override {
    lengths_ = {{"lengths", to_json(std::span<const Problem>(lengths))}};
    if (worker_.has_bucket) ask(lengths_);
  }

  Admission admit(std::size_t candidate, const Trial& trial) override {
    ready();
    nlohmann::json message = to_json(candidate, trial);
    Answer answer = ask(message);
    if (!answer.failure.empty()) {
      Admission admission;
      admission.verdict = store::Verdict::launch_failed;
      admission.reason = std::move(answer.failure);
      return admission;
    }
    Admission admission = admission_from_json(answer.json);
    if (admission.verdict == store::Verdict::ok) admitted_.insert_or_assign(candidate, std::move(message));
    return admission;
  }

  std::vector<Samples> sample(std::span<const Point> points, std::int64_t rounds) override {
    return take("sample", points, rounds);
  }

  std::vector<Samples> sample_chains(std::span<const Point> points, std::int64_t rounds) override {
    return take("sample_chains", points, rounds);
  }

  void drop(std::size_t candidate) override {
    admitted_.erase(candidate);
    if (worker_.has_bucket) ask({{"drop", candidate}});
  }

  [[nodiscard]] double prepared_ns() const override { return prepared_ns_; }

 private:
  /// The worker's answer, or the reason why it ended.
  struct Answer {
    nlohmann::json json;
    std::string failure;
  };

  Answer ask(const nlohmann::json& message) {
    Answer answer;
    const auto state = worker_.child->ask(message, answer.json, worker_.patience.trial);
    try {
      if (state == Channel::State::received) process::rethrow(answer.json);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::driver_failed) throw;
      worker_.stop();
      answer.failure = error.what();
      return answer;
    }
    if (state == Channel::State::received) return answer;
    const std::string how = worker_.stop();
    answer.failure = state == Channel::State::late
                         ? fmt::format("it was not done after {} s, and was stopped",
                                       std::chrono::duration<double>(worker_.patience.trial).count())
                         : fmt::format("the worker that tried it {}", how);
    return answer;
  }

  /// Where the worker ends while it samples several points, samples each alone to find out which one failed.
  std::vector<Samples> take(const char* what, std::span<const Point> points, std::int64_t rounds) {
    ready();
    for (const Point& point : points)
      if (!admitted_.contains(point.candidate)) return one_by_one(what, points, rounds);
    Answer answer = ask({{what, to_json(points)}, {"rounds", rounds}});
    if (answer.failure.empty()) return samples_from_json(answer.json);
    if (points.size() > 1) return one_by_one(what, points, rounds);
    admitted_.erase(points.front().candidate);
    return {{{}, std::move(answer.failure)}};
  }

  std::vector<Samples> one_by_one(const char* what, std::span<const Point> points, std::int64_t rounds) {
    std::vector<Samples> result;
    for (std::size_t i = 0; i < points.size(); ++i) {
      ready();
      if (admitted_.contains(points[i].candidate))
        result.push_back(std::move(take(what, points.subspan(i, 1), rounds).front()));
      else
        result.push_back({{}, "it failed when it was brought in again, into another worker"});
    }
    return result;
  }

  /// Makes sure that a worker holds the bucket and the admitted candidates. Starts another one where the last has ended.
  void ready() {
    while (!worker_.has_bucket) {
      begin();
      ask(lengths_);
      for (auto each = admitted_.begin(); each != admitted_.end() && worker_.has_bucket;) {
        const Answer answer = ask(each->second);
        const bool in = answer.failure.empty() && admission_from_json(answer.json).verdict == store::Verdict::ok;
        each = in ? std::next(each) : admitted_.erase(each);
      }
    }
  }

  /// Sends the bucket to the worker. Starts one where none runs. Throws as Worker::bench() does.
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
      if (worker_.has_bucket) {
        prepared_ns_ = answer.value("prepared_ns", 0.0);
        return;
      }
    }
    const std::string how = worker_.stop();
    throw Error(ErrorKind::driver_failed,
                fmt::format("{}: the worker {} {} before it was ready: it fills tensors and runs the reference first",
                            op_, worker_.program.string(), how));
  }

  Worker::State& worker_;
  std::string op_;
  nlohmann::json begin_, lengths_;
  double prepared_ns_ = 0;
  std::map<std::size_t, nlohmann::json> admitted_;  // the messages by which candidates were admitted
};

Worker::Worker(std::filesystem::path program, WorkerTimeouts patience)
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
