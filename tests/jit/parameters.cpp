// The parameters that a cubin declares. tests/builtin_ops checks manifests against them.
#include "jit/parameters.hpp"

#include <doctest/doctest.h>

#include <random>

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

TEST_CASE("a pack has 8 bytes for each member, and those of its views") {
  manifest::Op op;
  op.tensors.emplace_back().name = "x";
  op.axes.emplace_back().name = "rows";
  manifest::Argument view, axis, pack;
  view.kind = manifest::ArgumentKind::view;
  view.strides.resize(1);
  axis.kind = manifest::ArgumentKind::axis;
  pack.kind = manifest::ArgumentKind::pack;
  pack.members = {view, axis};
  manifest::Pass pass;
  pass.arguments = {pack};
  CHECK(argument_mistakes(op, nullptr, pass, std::vector<std::int64_t>{24}).empty());
  CHECK(argument_mistakes(op, nullptr, pass, std::vector<std::int64_t>{8}) ==
        std::vector<std::string>{"takes 8 bytes as argument 1, and 'pack = view = x, ...' has 24"});
}

TEST_CASE("a cubin tells what a kernel needs of a device, on each architecture" * doctest::skip(!has_nvrtc())) {
  constexpr const char* needy = R"(
extern "C" __global__ void __launch_bounds__(256) bounded(float* x) {
  __shared__ float s[300];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void local(float* x, int n) {
  float a[128];
  for (int i = 0; i < 128; ++i) a[i] = x[i * n];
  for (int k = 0; k < n; ++k) x[k] = a[k * 7 % 128];
}
)";
  for (const std::string& arch : supported_archs()) {
    const Cubin cubin = compile(specialise({{"needy.cuh", needy}}, {"bounded", "local"}, arch));
    CAPTURE(arch);
    const auto bounded = resources_of(cubin.image, "bounded"), local = resources_of(cubin.image, "local");
    REQUIRE(bounded);
    REQUIRE(local);
    CHECK(bounded->static_shared_bytes == 1200);
    CHECK(bounded->spill_bytes == 0);
    CHECK(bounded->registers >= 6);
    CHECK(bounded->max_threads == 256);
    CHECK(local->static_shared_bytes == 0);
    CHECK(local->spill_bytes == 512);
    CHECK(local->max_threads == (local->registers <= 64 ? 1024 : 768));
    CHECK(resources_of(cubin.image, "loca") == std::nullopt);
    CHECK(resources_of(std::span(cubin.image).first(100), "local") == std::nullopt);
  }
}

TEST_CASE("of an image that is damaged or cut off nothing is told, and nothing beyond it is read" *
          doctest::skip(!has_nvrtc())) {
  const Cubin cubin = compiled("sm_90a");
  const auto ask = [&](std::size_t size, std::size_t flipped, std::byte with) {
    std::vector<std::byte> image(cubin.image.begin(), cubin.image.begin() + static_cast<std::ptrdiff_t>(size));
    if (flipped < size) image[flipped] ^= with;
    static_cast<void>(resources_of(image, "many"));
    return parameter_sizes(image, "many");
  };
  for (std::size_t size = 0; size + 256 < cubin.image.size(); size += 97) static_cast<void>(ask(size, size, {}));
  CHECK(ask(0, 0, {}) == std::nullopt);
  CHECK(ask(cubin.image.size() / 2, 0, {}) == std::nullopt);
  std::mt19937 generator(7);
  for (int i = 0; i < 20000; ++i)
    static_cast<void>(ask(cubin.image.size(), generator() % cubin.image.size(), std::byte(generator() | 1U)));
}
