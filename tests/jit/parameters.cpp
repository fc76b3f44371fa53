// The parameters that a cubin declares, and the check of manifests against them.
#include "jit/parameters.hpp"

#include <doctest/doctest.h>

#include <random>
#include <set>

#include "faults/sanitizer.hpp"
#include "jit/executable.hpp"
#include "manifest/catalogue.hpp"
#include "manifest/problem.hpp"
#include "sources.hpp"

using namespace kiln;
using namespace kiln::jit;
using namespace kiln::jit::test;

namespace {

using Sizes = std::optional<std::vector<std::int64_t>>;

constexpr const char* kernels = R"(
struct alignas(64) descriptor { unsigned long long words[16]; };
struct length { const int* on_device; unsigned long long* report; int bound, unused; };
struct none {};
struct large { char bytes[5000]; };
extern "C" __global__ void many(const float* x, long long n, int m, float f, const __grid_constant__ descriptor map,
                                length l, double d, bool b, short s, none e, unsigned unused) {
  const_cast<float*>(x)[0] = n * m * f + map.words[3] + l.bound + d + b + s;
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void of_large(large l, int i, int* to) { to[0] = l.bytes[i]; }
template <int n> __global__ void of_template(int* to) { *to = n; }
)";

Cubin compiled(const std::string& arch) {
  return compile(specialise({{"kernels.cuh", kernels}}, {"many", "nothing", "of_large", "of_template<3>"}, arch));
}

}  // namespace

TEST_CASE("a cubin tells how many bytes each parameter has, on each architecture" * doctest::skip(!has_nvrtc())) {
  for (const std::string& arch : supported_archs()) {
    const Cubin cubin = compiled(arch);
    const auto sizes = [&](std::size_t index) { return parameter_sizes(cubin.image, cubin.lowered_names.at(index)); };
    CAPTURE(arch);
    CHECK(sizes(0) == std::vector<std::int64_t>{8, 8, 4, 4, 128, 24, 8, 1, 2, 1, 4});
    CHECK(sizes(1) == std::vector<std::int64_t>{});
    CHECK(sizes(2) == std::vector<std::int64_t>{5000, 4, 8});
    CHECK(sizes(3) == std::vector<std::int64_t>{8});
    CHECK(parameter_sizes(cubin.image, "man") == std::nullopt);
    CHECK(parameter_sizes(cubin.image, "") == std::nullopt);
  }
}

TEST_CASE("of an image that is damaged or cut off nothing is told, and nothing beyond it is read" *
          doctest::skip(!has_nvrtc())) {
  const Cubin cubin = compiled("sm_90a");
  const auto ask = [&](std::size_t size, std::size_t flipped, std::byte with) {
    std::vector<std::byte> image(cubin.image.begin(), cubin.image.begin() + static_cast<std::ptrdiff_t>(size));
    if (flipped < size) image[flipped] ^= with;
    return parameter_sizes(image, "many");
  };
  for (std::size_t size = 0; size + 256 < cubin.image.size(); size += 97) static_cast<void>(ask(size, size, {}));
  CHECK(ask(0, 0, {}) == std::nullopt);
  CHECK(ask(cubin.image.size() / 2, 0, {}) == std::nullopt);
  std::mt19937 generator(7);
  for (int i = 0; i < 20000; ++i)
    static_cast<void>(ask(cubin.image.size(), generator() % cubin.image.size(), std::byte(generator() | 1U)));
}

// Its compiles take 20 s. Sanitizers would add time and find nothing in NVRTC.
TEST_CASE("the built-in ops' manifests give each kernel what it takes" *
          doctest::skip(!has_nvrtc() || faults::address_sanitizer || faults::thread_sanitizer)) {
  manifest::DeviceFacts device;
  device.values = {90, 132, 232448, 233472, 65536, 2048, 62914560};
  const auto check = [](const manifest::Op& op, const manifest::Implementation* implementation,
                        const Specialisation& specialisation, std::span<const std::int64_t> frame) {
    const Cubin cubin = compile(specialisation);
    std::size_t name = 0;
    for (const manifest::Pass& pass : implementation != nullptr ? implementation->passes : op.reference) {
      if (pass.when && pass.when->evaluate(frame).number == 0) continue;
      const auto parameters = parameter_sizes(cubin.image, cubin.lowered_names.at(name++));
      REQUIRE(parameters.has_value());
      CHECK_NOTHROW(check_arguments(op, implementation, pass, *parameters));
    }
  };
  const manifest::Catalogue catalogue(std::span<const std::filesystem::path>{});
  for (const manifest::Op& op : catalogue.all()) {
    std::set<const manifest::Implementation*> left;
    for (const manifest::Implementation& each : op.implementations)
      if (!each.is_library()) left.insert(&each);
    const manifest::Selection& types = op.selections.at(0);
    for (std::size_t i = 0; i < 2 * types.values.size(); ++i) {
      const std::int64_t size = i % 2 == 0 ? 4096 : 16;
      std::vector<manifest::Setting> settings = {{types.name, types.values[i / 2]}};
      for (const manifest::Axis& axis : op.axes)
        settings.push_back({axis.name, std::to_string(std::min(axis.maximum, size))});
      const Problem problem = manifest::make_problem(op, settings);
      const auto frame = manifest::make_frame(op, nullptr, problem, device, {});
      if (i == 1) check(op, nullptr, specialise_reference(op, frame, "sm_90a"), frame);
      for (const manifest::Implementation& each : op.implementations) {
        if (!left.contains(&each) || manifest::why_not_eligible(op, each, problem, device)) continue;
        const bool is_legal = !manifest::broken_constraint(op, each, problem, device, each.default_config);
        const auto config = is_legal ? each.default_config : manifest::search_space(op, each, problem, device).front();
        const auto its_frame = manifest::make_frame(op, &each, problem, device, config);
        CAPTURE(each.file);
        check(op, &each, jit::specialise(op, each, its_frame, "sm_90a"), its_frame);
        left.erase(&each);
      }
    }
    for (const manifest::Implementation* each : left) FAIL_CHECK(each->file);
  }
}
