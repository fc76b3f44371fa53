// Products of numbers that are not ordinary: infinities, NaN, subnormal ones.
#include <cmath>
#include <limits>

#include "gpu/products.hpp"

namespace kiln::gpu_tests {
namespace {

/// x and w row after row along k, as their type holds them.
struct SpecialOperands {
  std::int64_t m, n, k;
  manifest::DType type;
  std::vector<double> x, w;
};

std::vector<double> as_held(manifest::DType type, const std::vector<float>& values) {
  const std::vector<float> held = to_numbers(type, to_bits(type, values));
  return {held.begin(), held.end()};
}

enum class Special { not_finite, small_x, small_w };

/// Numbers of a type below its least normal one, of both signs.
float draw_subnormal(manifest::DType type, std::mt19937& generator) {
  const int least = type == manifest::DType::bf16 ? -133 : type == manifest::DType::f16 ? -24 : -9;
  const unsigned fractions = type == manifest::DType::bf16 ? 127 : type == manifest::DType::f16 ? 1023 : 7;
  const auto magnitude = static_cast<float>(generator() % fractions + 1);
  return std::ldexp(generator() % 2 == 0 ? magnitude : -magnitude, least);
}

/// Infinities at both ends of k, alone, against each other and against a zero, and NaN; or one side subnormal, and the other so
/// large that sums are normal in f32. A type without infinities takes its largest number for them.
SpecialOperands make_special(Special special, std::int64_t m, std::int64_t n, std::int64_t k, manifest::DType type,
                             std::mt19937& generator) {
  std::uniform_real_distribution<float> ordinary(-1, 1);
  const float large = type == manifest::DType::bf16 && special != Special::not_finite ? 0x1p100F : 1.0F;
  const auto values = [&](std::int64_t rows, bool small) {
    std::vector<float> made(static_cast<std::size_t>(rows * k));
    for (float& each : made) each = small ? draw_subnormal(type, generator) : large * ordinary(generator);
    return made;
  };
  std::vector<float> x = values(m, special == Special::small_x), w = values(n, special == Special::small_w);
  if (special == Special::not_finite) {
    constexpr float infinite = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const auto at = [&](std::int64_t row, std::int64_t i) { return static_cast<std::size_t>(row * k + i); };
    x[at(0, 3)] = infinite, w[at(2, 3)] = 0;
    x[at(1, k - 1)] = -infinite;
    x[at(2, 0)] = nan;
    x[at(m - 1, 5)] = infinite, x[at(m - 1, k - 2)] = -infinite;
    w[at(n - 1, k / 2)] = infinite;
    w[at(n - 2, 1)] = nan;
  }
  return {m, n, k, type, as_held(type, x), as_held(type, w)};
}

/// Where `got` is not what double arithmetic gives: a NaN, an infinity of the right sign, a number near the right one.
std::size_t wrong_sums(const SpecialOperands& of, const std::vector<float>& got) {
  // Of the sum of magnitudes: products of 8-bit numbers are cut off 13 bits under the largest that they are summed with.
  const double cut_off = manifest::size_of(of.type) == 1 ? 0x1p-7 : 0x1p-14;
  std::size_t wrong = 0;
  for (std::int64_t i = 0; i < of.m * of.n; ++i) {
    const double *x = of.x.data() + i / of.n * of.k, *w = of.w.data() + i % of.n * of.k;
    double right = 0, magnitude = 0;
    for (std::int64_t j = 0; j < of.k; ++j) {
      right += x[j] * w[j];
      magnitude += std::fabs(x[j] * w[j]);
    }
    const auto found = static_cast<double>(got[static_cast<std::size_t>(i)]);
    const bool is_right = std::isnan(right)   ? std::isnan(found)
                          : std::isinf(right) ? found == right
                                              : std::fabs(found - right) <= cut_off * magnitude;
    wrong += is_right ? 0 : 1;
  }
  return wrong;
}

cuda::Buffer to_device(const SpecialOperands& of, const std::vector<double>& values) {
  const Bits bits = to_bits(of.type, {values.begin(), values.end()});
  cuda::Buffer buffer(static_cast<std::int64_t>(bits.size()));
  buffer.copy_from_host(bits.data(), buffer.bytes());
  return buffer;
}

const void* address_of(const cuda::Buffer& buffer) { return reinterpret_cast<const void*>(buffer.pointer()); }

/// Two kinds of kernel of each implementation, on operands of each sort.
void check_special(Fixture& fixture, const char* m, const char* n, const char* k, const char* dtype,
                   std::mt19937& generator) {
  const manifest::Op& op = fixture.op("gemm");
  const Problem problem = fixture.problem(op, {{"m", m}, {"n", n}, {"k", k}, {"dtype", dtype}, {"out", "f32"}});
  const Problem bucket = manifest::bucket_of(op, problem);
  std::vector<Candidate> kinds = one_of_each_kind(fixture, op, bucket, 2, generator);
  prefetch(fixture, op, bucket, kinds);
  for (const Special special : {Special::not_finite, Special::small_x, Special::small_w}) {
    const SpecialOperands of =
        make_special(special, std::stol(m), std::stol(n), std::stol(k), *manifest::parse_dtype(dtype), generator);
    const cuda::Buffer x = to_device(of, of.x), w = to_device(of, of.w), y(of.m * of.n * 4);
    Arguments arguments;
    arguments.set(tensor_named(op, "x"), address_of(x)).set(tensor_named(op, "w"), address_of(w));
    arguments.set(tensor_named(op, "y"), address_of(y));
    std::size_t launched = 0;
    for (const Candidate& each : kinds) {
      y.fill_bytes(0x5a, fixture.stream.handle());
      const jit::Executable executable = fixture.load(op, *each.implementation, bucket, each.config);
      if (!launch_product(fixture, executable, problem, arguments)) continue;
      const Bits bits = read_bits(fixture, address_of(y), y.bytes());
      const std::size_t wrong = wrong_sums(of, to_numbers(manifest::DType::f32, bits));
      CHECK_MESSAGE(wrong == 0,
                    fmt::format("{} {} {}, operands {}: {} sums of {} are wrong", manifest::to_string(op, problem),
                                each.implementation->name, manifest::to_string(*each.implementation, each.config),
                                static_cast<int>(special), wrong, of.m * of.n));
      ++launched;
    }
    CHECK(launched > 2);
  }
}

}  // namespace

TEST_CASE("infinities and NaN stay in their rows and columns of gemm, and subnormal numbers are not flushed") {
  Fixture fixture;
  std::mt19937 generator(83);
  check_special(fixture, "13", "136", "528", "bf16", generator);
  check_special(fixture, "130", "136", "528", "f16", generator);
  check_special(fixture, "13", "136", "528", "e4m3", generator);
}

}  // namespace kiln::gpu_tests
