// Several ways to one result: verified, then timed in turns, then said in fields of a line.
#pragma once

#include <string>
#include <vector>

#include "cli/output.hpp"
#include "tune/measure.hpp"
#include "tune/verification_case.hpp"

namespace bench {

struct Contender {
  std::string name;  // what its fields begin with
  kiln::tune::Launch launch;
  std::vector<double> samples_ns = {};
  [[nodiscard]] kiln::tune::Cost cost() const;
  [[nodiscard]] bool is_faster_than(const Contender& other) const { return cost().median_ns < other.cost().median_ns; }
};

/// Launches once into poisoned outputs and compares with the reference. What the launch loads is loaded then: nothing may be behind the
/// stopwatch's gate.
kiln::tune::Check verify(kiln::tune::VerificationCase& tensors, const kiln::tune::Launch& launch, CUstream stream);

/// The same number of samples of each, taken in turns.
void sample(std::vector<Contender>& all, std::int64_t rounds, kiln::tune::Stopwatch& stopwatch, CUstream stream);
/// A few, then as many as a budget allows, which are kept.
void time(std::vector<Contender>& all, kiln::tune::Stopwatch& stopwatch, CUstream stream);

/// "kiln_ns" and the ends of its interval; with `flops`, "kiln_tflop_s" too.
void put_time(kiln::cli::Json& line, const std::string& name, const Contender& contender, double flops);
/// "best_over_kiln" and the ends of its interval.
void put_ratio(kiln::cli::Json& line, const Contender& over, const std::string& over_name, const Contender& under);

}  // namespace bench
