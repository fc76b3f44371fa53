#include "tune/forecast.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kiln::tune {

Forecast::Forecast(Expectations expectations)
    : expectations_(std::move(expectations)), residuals_(expectations_.candidates()) {
  // A candidate without an estimate is expected to take twice as long as the slowest estimate.
  for (std::size_t size = 0; size < expectations_.sizes(); ++size) {
    double worst = 1;
    for (const auto& each : expectations_.expected_ns)
      if (std::isfinite(each[size])) worst = std::max(worst, each[size]);
    for (auto& each : expectations_.expected_ns)
      if (!std::isfinite(each[size]) || each[size] <= 0) each[size] = 2 * worst;
  }
  for (std::size_t i = expectations_.kernel.size(); i < residuals_.size(); ++i) expectations_.kernel.push_back(i);
  for (std::size_t i = 0; i < residuals_.size(); ++i)
    for (const double each : expectations_.expected_ns[i]) residuals_[i].kind += std::log(each);
}

void Forecast::learn(Point point, double measured_ns) {
  Residuals& of = residuals_[point.candidate];
  of.sum += std::log(measured_ns / expectations_.expected_ns[point.candidate][point.size]);
  if (of.count++ == 0) measured_.push_back(point.candidate);
  ++learnt_;
}

bool Forecast::are_neighbours(std::size_t a, std::size_t b) const {
  const auto& x = expectations_.position[a];
  const auto& y = expectations_.position[b];
  if (x.front() != y.front()) return false;
  std::size_t different = 0;
  for (std::size_t i = 1; i < x.size(); ++i) different += x[i] != y[i] ? 1 : 0;
  return different == 1;
}

double Forecast::correction(std::size_t candidate) const {
  const Residuals& of = residuals_[candidate];
  if (of.learnt_at == learnt_) return of.correction;
  double weights = 0, sum = 0;
  for (const std::size_t each : measured_) {
    const double weight = std::exp(-distance(candidate, each));
    weights += weight;
    sum += weight * residuals_[each].sum / residuals_[each].count;
  }
  of.correction = weights > 0 ? std::exp(sum / weights) : 1.0;
  of.learnt_at = learnt_;
  return of.correction;
}

double Forecast::distance(std::size_t a, std::size_t b) const {
  const auto& x = expectations_.position[a];
  const auto& y = expectations_.position[b];
  constexpr double another_implementation = 8;
  if (x.front() != y.front()) return another_implementation;
  double steps = 0;
  for (std::size_t i = 1; i < x.size(); ++i) steps += std::min<double>(2, std::abs(static_cast<double>(x[i] - y[i])));
  return steps;
}

}  // namespace kiln::tune
