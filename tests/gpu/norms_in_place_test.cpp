// What the norms allow their tensors to share: a sum may take the place of its residual, or of x.
#include <fmt/format.h>

#include <random>

#include "gpu/fixture.hpp"

namespace kiln::gpu_tests {
namespace {

using Bf16s = std::vector<std::uint16_t>;

Bf16s random_bf16(std::int64_t count, std::mt19937& generator) {
  Bf16s values(static_cast<std::size_t>(count));
  for (std::uint16_t& each : values)  // of either sign, from 0.5 up to 2
    each = static_cast<std::uint16_t>((generator() & 0x8000U) | (0x3f00U + (generator() & 0xffU)));
  return values;
}

cuda::Buffer on_device(const Bf16s& values) {
  cuda::Buffer buffer(static_cast<std::int64_t>(values.size() * sizeof(Bf16s::value_type)));
  buffer.copy_from_host(values.data(), buffer.bytes());
  return buffer;
}

Bf16s on_host(const cuda::Buffer& buffer) {
  Bf16s values(static_cast<std::size_t>(buffer.bytes()) / sizeof(Bf16s::value_type));
  buffer.copy_to_host(values.data(), buffer.bytes());
  return values;
}

const void* address(const cuda::Buffer& buffer) { return reinterpret_cast<const void*>(buffer.pointer()); }

}  // namespace

TEST_CASE("the norms give the same, bit for bit, where the sum takes the place of the residual or of x") {
  Fixture fixture;
  Options options;
  options.overlay = "";
  options.on_miss = MissPolicy::nearest;
  const Engine engine(options);
  std::mt19937 generator(41);
  for (const char* name : {"rms_norm", "layer_norm"})
    for (const std::int64_t cols : {200, 1000, 4096, 4099, 100000}) {
      constexpr std::int64_t rows = 11;
      const Op op = engine.op(name);
      const Problem problem = op.problem({{"rows", rows}, {"cols", cols}, {"dtype", "bf16"}, {"residual", "add"}});
      const Bf16s x = random_bf16(rows * cols, generator), residual = random_bf16(rows * cols, generator);
      const cuda::Buffer weight = on_device(random_bf16(cols, generator));
      const auto run = [&](const cuda::Buffer& x_in, const cuda::Buffer& residual_in, const cuda::Buffer& sum) {
        const cuda::Buffer y = on_device(x);
        op.launch(problem,
                  op.arguments({{"x", address(x_in)},
                                {"residual_in", address(residual_in)},
                                {"weight", address(weight)},
                                {"sum", address(sum)},
                                {"y", address(y)}}),
                  fixture.stream.handle());
        fixture.stream.synchronize();
        return std::pair(on_host(sum), on_host(y));
      };
      const cuda::Buffer plain_x = on_device(x), plain_residual = on_device(residual), sum = on_device(x);
      const auto wanted = run(plain_x, plain_residual, sum);
      const cuda::Buffer shared_residual = on_device(residual), shared_x = on_device(x);
      CHECK_MESSAGE(run(plain_x, shared_residual, shared_residual) == wanted, fmt::format("{} {}", name, cols));
      CHECK_MESSAGE(run(shared_x, plain_residual, shared_x) == wanted, fmt::format("{} {}", name, cols));
    }
}

}  // namespace kiln::gpu_tests
