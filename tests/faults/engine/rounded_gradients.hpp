// dk of attention's backward pass with ALiBi on the host: in double, with the kernels' roundings, and with all intermediate results in bf16.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace kiln::faults {

struct GradientShape {
  std::int64_t queries, keys, heads, dim;
};

/// Errors are parts of the root mean square of dk.
struct GradientErrors {
  double of_kernels = 0;                  // the largest, as a part of the tolerance
  double of_plain = 0;                    // likewise
  double kernels_rms = 0, plain_rms = 0;  // of all elements
};

class RoundedGradients {
 public:
  RoundedGradients(const GradientShape& shape, std::uint64_t seed) : shape_(shape), state_(seed) {
    for (std::int64_t head = 0; head < shape.heads; ++head) add_head();
  }

  /// An element may be wrong by relative * |element| + absolute * the root mean square.
  [[nodiscard]] GradientErrors errors(double relative, double absolute) const {
    GradientErrors found;
    double squares = 0, of_kernels = 0, of_plain = 0;
    for (const double each : wanted_) squares += each * each;
    const double rms = std::sqrt(squares / static_cast<double>(wanted_.size()));
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const double bound = relative * std::abs(wanted_[i]) + absolute * rms;
      const double kernels = std::abs(round(kernels_[i]) - wanted_[i]), plain = std::abs(round(plain_[i]) - wanted_[i]);
      found.of_kernels = std::max(found.of_kernels, kernels / bound);
      found.of_plain = std::max(found.of_plain, plain / bound);
      of_kernels += kernels * kernels;
      of_plain += plain * plain;
    }
    found.kernels_rms = std::sqrt(of_kernels / squares);
    found.plain_rms = std::sqrt(of_plain / squares);
    return found;
  }

 private:
  using Values = std::vector<double>;

  static double round(double value) {
    auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    return static_cast<double>(std::bit_cast<float>(bits));
  }
  /// In [-1, 1).
  double uniform() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
  }
  double normal() {
    const double radius = std::sqrt(-2 * std::log((uniform() + 1) / 2 + 0x1p-54));
    return radius * std::cos(3.141592653589793 * uniform());
  }
  template <typename Draw>
  static Values drawn(std::int64_t rows, std::int64_t columns, Draw draw) {
    Values values;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < columns; ++i) values.push_back(round(draw(row)));
    return values;
  }
  [[nodiscard]] double dot(const double* a, const double* b) const {
    double sum = 0;
    for (std::int64_t i = 0; i < shape_.dim; ++i) sum += a[i] * b[i];
    return sum;
  }

  /// Inputs are those of a verification: templates/attention_backward/prepare.cuh. All queries see all keys.
  void add_head() {
    const auto [queries, keys, heads, dim] = shape_;
    const double scale = 1 / std::sqrt(static_cast<double>(dim)),
                 slope = std::min(0.1, 2 / static_cast<double>(keys)) * uniform();
    const double size = std::pow(static_cast<double>(keys), 0.375);
    const Values q = drawn(queries, dim, [&](std::int64_t) { return normal(); });
    const Values k = drawn(keys, dim, [&](std::int64_t) { return normal(); });
    const Values v =
        drawn(keys, dim, [&](std::int64_t key) { return uniform() * std::sqrt(1.0 + static_cast<double>(key)); });
    const Values gradients = drawn(queries, dim, [&](std::int64_t) { return uniform() * size; });
    const std::size_t first = wanted_.size(), count = static_cast<std::size_t>(keys * dim);
    for (Values* each : {&wanted_, &kernels_, &plain_}) each->resize(first + count);
    Values logits(static_cast<std::size_t>(keys));
    for (std::int64_t query = 0; query < queries; ++query) {
      const double *const of_query = &q[static_cast<std::size_t>(query * dim)],
                          *const gradient = &gradients[static_cast<std::size_t>(query * dim)];
      double sum = 0;
      for (std::int64_t key = 0; key < keys; ++key) {
        double& logit = logits[static_cast<std::size_t>(key)];
        logit = dot(of_query, &k[static_cast<std::size_t>(key * dim)]) * scale -
                slope * std::abs(static_cast<double>(query + keys - queries - key));
        sum += std::exp(logit);
      }
      const double lse = static_cast<double>(static_cast<float>(std::log(sum)));
      double delta = 0;
      for (std::int64_t i = 0; i < dim; ++i) {
        double result = 0;
        for (std::int64_t key = 0; key < keys; ++key)
          result += std::exp(logits[static_cast<std::size_t>(key)] - lse) * v[static_cast<std::size_t>(key * dim + i)];
        delta += round(round(result) + 0.25 * uniform()) * gradient[i];
      }
      for (std::int64_t key = 0; key < keys; ++key) {
        const double logit = logits[static_cast<std::size_t>(key)], weight = std::exp(logit - lse);
        const double product = dot(gradient, &v[static_cast<std::size_t>(key * dim)]);
        // The kernels round weights and their gradients, which tensor cores take. The plain computation rounds all that it writes.
        const double change = weight * (product - delta), of_kernels = round(round(weight) * (product - delta));
        const double of_plain = round(round(std::exp(round(logit) - lse)) * round(round(product) - round(delta)));
        for (std::int64_t i = 0; i < dim; ++i) {
          const std::size_t at = first + static_cast<std::size_t>(key * dim + i);
          wanted_[at] += scale * change * of_query[i];
          kernels_[at] += scale * of_kernels * of_query[i];
          plain_[at] += scale * of_plain * of_query[i];
        }
      }
    }
  }

  GradientShape shape_;
  std::uint64_t state_;
  Values wanted_, kernels_, plain_;
};

}  // namespace kiln::faults
