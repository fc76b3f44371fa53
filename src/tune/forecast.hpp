// Expected times of a search's candidates, corrected by what was measured. Pure.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tune/search.hpp"

namespace kiln::tune {

/// Corrects expectations by measurements. The logarithm of measured over expected is assumed to vary slowly over the
/// space. So a candidate's correction is the mean over measured candidates, with weights that fall with their distance
/// in steps. It is one factor for all sizes.
class Forecast {
 public:
  explicit Forecast(Expectations expectations);

  void learn(Point point, double measured_ns);
  [[nodiscard]] double expected_ns(Point point) const {
    return expectations_.expected_ns[point.candidate][point.size] * correction(point.candidate);
  }
  /// Returns the expected time corrected by the candidate's own measurements alone. Precondition: it has some.
  [[nodiscard]] double expected_by_own_ns(Point point) const {
    const Residuals& of = residuals_[point.candidate];
    return expectations_.expected_ns[point.candidate][point.size] * std::exp(of.sum / of.count);
  }
  [[nodiscard]] bool is_legal(Point point) const { return expectations_.legal[point.candidate][point.size]; }
  [[nodiscard]] const Expectations& expectations() const noexcept { return expectations_; }
  /// Equal for candidates that the model cannot tell apart: their expectations are equal to the bit.
  [[nodiscard]] double kind(std::size_t candidate) const { return residuals_[candidate].kind; }
  /// Whether two configs of one implementation differ in exactly one parameter.
  [[nodiscard]] bool are_neighbours(std::size_t a, std::size_t b) const;

 private:
  struct Residuals {
    double kind = 0;
    double sum = 0;
    int count = 0;
    mutable double correction = 1;
    mutable std::int64_t learnt_at = 0;  // value of learnt_ when `correction` was computed
  };
  [[nodiscard]] double correction(std::size_t candidate) const;
  [[nodiscard]] double distance(std::size_t a, std::size_t b) const;

  Expectations expectations_;
  std::vector<Residuals> residuals_;
  std::vector<std::size_t> measured_;  // candidates with residuals
  std::int64_t learnt_ = 0;            // calls of learn()
};

}  // namespace kiln::tune
