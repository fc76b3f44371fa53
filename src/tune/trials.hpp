// Brings a tune's candidates into its bench, and samples them in batches between which the device rests.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "tune/bench.hpp"
#include "tune/candidates.hpp"
#include "tune/machine.hpp"
#include "tune/request.hpp"

namespace kiln::tune {

/// All device work of a tune. `check_stop` is called before each piece of it, and throws to end the tune.
class Trials {
 public:
  /// Begins to compile the reference, since every verification needs it. A worker prepares meanwhile.
  Trials(const TuneRequest& request, Machine& machine, std::function<void()> check_stop);
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;
  /// Waits for the bench. Every other member needs it.
  void begin();

  [[nodiscard]] Bench& bench() const noexcept { return *bench_; }
  [[nodiscard]] bool is_in(std::size_t candidate) const { return loaded_.contains(candidate); }
  /// Compiles, loads and verifies a candidate. It is in when the verdict is ok. Throws Error(no_nvrtc), and as
  /// Bench::admit() does.
  Admission bring_in(std::size_t candidate, const Candidate& of);
  /// Unloads a candidate.
  void drop(std::size_t candidate);
  /// Counts a candidate that failed as not in.
  void forget(std::size_t candidate) { loaded_.erase(candidate); }
  /// Drops the candidates that are in and that `goes` names.
  void drop_if(const std::function<bool(std::size_t candidate)>& goes);
  /// Takes all rounds until one fails. The points of one size are sampled in the same batch.
  std::vector<Samples> sample(std::span<const Point> points, std::int64_t rounds,
                              const std::function<double(Point)>& expected_ns);
  /// Runs device work and reports its time to TuneRequest::pace.
  void paced(const std::function<void()>& work) const;

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::future<std::unique_ptr<Bench>> begin_bench() const;
  std::optional<answer::KeyedCubin> compile(const Candidate& of, Admission& admission) const;
  std::vector<Samples> sample_some(std::span<const Point> points, std::int64_t rounds, double round_ns);
  void sample_again(Point point, std::int64_t rounds, Samples& samples);
  void warm_up(Point point);

  const TuneRequest& request_;
  Machine& machine_;
  std::function<void()> check_stop_;
  std::future<std::unique_ptr<Bench>> preparing_;
  std::unique_ptr<Bench> bench_;
  std::set<std::size_t> loaded_;
  Clock::time_point sampled_ = Clock::now();
};

}  // namespace kiln::tune
