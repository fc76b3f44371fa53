#include "tune/worker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "kiln/error.hpp"
#include "process/child.hpp"
#include "process/message.hpp"
#include "tune/verification_code.hpp"
#include "tune/worker_messages.hpp"

namespace kiln::tune {

using process::Channel;

struct Worker::State {
  State(std::filesystem::path found, WorkerTimeouts chosen) : program(std::move(found)), patience(chosen) {}

  /// Ends the process, and returns how it had ended if it had.
  std::string stop() {
    std::string how = child ? child->stop() : std::string();
    was_killed = child && child->was_killed();
    child.reset();
    has_bucket = false;
    return how;
  }

  std::filesystem::path program;
  WorkerTimeouts patience;
  std::optional<process::Child> child;
  bool has_bucket = false;
  bool was_killed = false;  // the last process that ended, and from outside
};

/// A bench whose bucket lies in the worker, and in the workers that replace it.
class RemoteBench final : public Bench {
 public:
  RemoteBench(Worker::State& worker, const BenchSettings& settings, const std::vector<store::CubinRow>& cubins)
      : worker_(worker), op_(settings.bucket.op->name), begin_(to_json(settings, cubins)) {
    worker_.has_bucket = false;
    begin();
  }

  void set_sizes(std::vector<Problem> sizes) override {
    sizes_ = {{"lengths", to_json(std::span<const Problem>(sizes))}};
    if (worker_.has_bucket) ask(sizes_, ignore);
  }

  Admission admit(std::size_t candidate, const Trial& trial) override {
    nlohmann::json message = to_json(candidate, trial);
    Admission admission;
    const std::string failure = unless_killed([&] {
      ready();
      return ask(message, [&](const nlohmann::json& answer) { admission = admission_from_json(answer); });
    });
    if (!failure.empty()) {
      admission.verdict = store::Verdict::launch_failed;
      admission.reason = failure;
    } else if (admission.verdict == store::Verdict::ok) {
      admitted_.insert_or_assign(candidate, std::move(message));
    }
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
    if (worker_.has_bucket) ask({{"drop", candidate}}, ignore);
  }

  [[nodiscard]] double prepared_ns() const override { return prepared_ns_; }

 private:
  static void ignore(const nlohmann::json&) {}

  /// Asks, and reads the answer by `read`. Returns why there is none: the worker ended, was late, or answered what
  /// cannot be read. It is ended then. Throws Error(out_of_memory) of the worker.
  template <class Read>
  std::string ask(const nlohmann::json& message, const Read& read) {
    nlohmann::json answer;
    const auto state = worker_.child->ask(message, answer, worker_.patience.trial);
    std::string failure;
    if (state == Channel::Outcome::received) {
      try {
        process::rethrow(answer);
        read(answer);
        return {};
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::out_of_memory) throw;
        failure = error.what();
      } catch (const std::exception& error) {
        failure = fmt::format("the answer of the worker that tried it cannot be read: {}", error.what());
      }
    }
    const std::string how = worker_.stop();
    switch (state) {
      case Channel::Outcome::received: return failure;
      case Channel::Outcome::unreadable: return "the worker that tried it answered what is no message";
      case Channel::Outcome::late:
        return fmt::format("it was not done after {} s, and was stopped",
                           std::chrono::duration<double>(worker_.patience.trial).count());
      case Channel::Outcome::closed: break;
    }
    return fmt::format("the worker that tried it {}", how);
  }

  /// Returns what `attempt` returns: a failure, or nothing. Where the worker was killed from outside, which is not the
  /// candidate's doing, makes another attempt, a few at most.
  template <class Attempt>
  std::string unless_killed(const Attempt& attempt) {
    std::string failure = attempt();
    for (int more = 1; more < most_attempts && !failure.empty() && worker_.was_killed; ++more) failure = attempt();
    return failure;
  }

  /// Where the worker ends while it samples several points, samples each alone to find out which one failed.
  std::vector<Samples> take(const char* what, std::span<const Point> points, std::int64_t rounds) {
    std::vector<Samples> samples;
    const std::string failure = unless_killed([&]() -> std::string {
      ready();
      if (!are_admitted(points)) return "it failed when it was brought in again, into another worker";
      return ask({{what, to_json(points)}, {"rounds", rounds}},
                 [&](const nlohmann::json& answer) { samples = samples_from_json(answer, points.size()); });
    });
    if (failure.empty()) return samples;
    if (points.size() > 1) return one_by_one(what, points, rounds);
    admitted_.erase(points.front().candidate);
    return {{{}, failure}};
  }

  [[nodiscard]] bool are_admitted(std::span<const Point> points) const {
    return std::ranges::all_of(points, [&](const Point& each) { return admitted_.contains(each.candidate); });
  }

  std::vector<Samples> one_by_one(const char* what, std::span<const Point> points, std::int64_t rounds) {
    std::vector<Samples> result;
    for (std::size_t i = 0; i < points.size(); ++i)
      result.push_back(std::move(take(what, points.subspan(i, 1), rounds).front()));
    return result;
  }

  /// Makes sure that a worker holds the bucket and the admitted candidates. Starts another one where the last has
  /// ended, a few times at most where that is no candidate's doing.
  void ready() {
    std::string failure;
    for (int attempt = 0; !worker_.has_bucket; ++attempt) {
      if (attempt == most_attempts)
        throw Error(ErrorKind::driver_failed,
                    fmt::format("{}: {} workers in a row ended before candidates were in them again: {}", op_,
                                most_attempts, failure));
      begin();
      if (!sizes_.is_null()) failure = ask(sizes_, ignore);
      for (auto each = admitted_.begin(); each != admitted_.end() && worker_.has_bucket;) {
        bool is_in = false;
        failure = ask(each->second, [&](const nlohmann::json& answer) {
          is_in = admission_from_json(answer).verdict == store::Verdict::ok;
        });
        const bool was_killed = !failure.empty() && worker_.was_killed;
        if (!is_in && !was_killed) attempt = 0;  // each candidate is rejected once
        each = is_in || was_killed ? std::next(each) : admitted_.erase(each);
      }
    }
  }

  /// Sends the bucket to the worker. Starts one where none runs, and another where that is killed from outside. Throws
  /// as Worker::bench() does.
  void begin() {
    const std::string failure = unless_killed([this] { return try_to_begin(); });
    if (!failure.empty())
      throw Error(ErrorKind::driver_failed,
                  fmt::format("{}: the worker {} {} before it was ready: it fills tensors and runs the reference first",
                              op_, worker_.program.string(), failure));
  }

  std::string try_to_begin() {
    if (worker_.child && worker_.child->gone()) worker_.stop();
    worker_.was_killed = false;
    if (!worker_.child) worker_.child.emplace(worker_.program);
    nlohmann::json answer;
    const auto state = worker_.child->ask(begin_, answer, worker_.patience.begin);
    if (state != Channel::Outcome::received) {
      const std::string how = worker_.stop();
      return state == Channel::Outcome::unreadable ? "answered what is no message" : how;
    }
    try {
      process::rethrow(answer);
      prepared_ns_ = prepared_ns_from_json(answer);
      worker_.has_bucket = true;
      return {};
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::driver_failed) worker_.stop();
      throw;
    } catch (const std::exception& error) {
      worker_.stop();
      return fmt::format("answered what cannot be read ({})", error.what());
    }
  }

  Worker::State& worker_;
  std::string op_;
  nlohmann::json begin_, sizes_;
  double prepared_ns_ = 0;
  std::map<std::size_t, nlohmann::json> admitted_;  // the messages by which candidates were admitted
};

Worker::Worker(std::filesystem::path program, WorkerTimeouts patience)
    : state_(std::make_unique<State>(std::move(program), patience)) {}

Worker::~Worker() = default;

std::unique_ptr<Bench> Worker::bench(const BenchSettings& settings, answer::Cubins& cubins) {
  return std::make_unique<RemoteBench>(*state_, settings, verification_rows(settings.bucket, settings.arch, cubins));
}

}  // namespace kiln::tune
