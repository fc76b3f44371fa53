// Embeds Kiln: an op from a folder, launched at lengths that nobody tuned one by one.
#include <kiln/kiln.hpp>

#include <cstdio>
#include <vector>

// This program allocates through the driver that Kiln found, so that it needs no toolkit; yours would use the CUDA runtime.
#include "device_memory.hpp"

int main(int argc, char** argv) {
  try {
    kiln::Options options;
    options.template_paths = {argc > 1 ? argv[1] : "examples/ops"};
    const kiln::Engine engine(options);
    const kiln::Op op = engine.op("squared_relu");
    const kiln::AxisId count = op.axis("count");
    kiln::Problem problem = op.problem({{"count", 1}, {"dtype", "f32"}});

    use_device();
    const std::vector<float> host = {-1, 0, 1, 2, 3, -4, 5};
    const DeviceMemory x(host), y(host.size());
    const kiln::Arguments arguments = op.arguments({{"x", x.address()}, {"y", y.address()}, {"scale", 0.5}});
    for (std::size_t length = 1; length <= host.size(); ++length) {
      problem[count] = static_cast<std::int64_t>(length);
      const kiln::Origin origin = op.launch(problem, arguments, nullptr);
      const std::vector<float> result = y.read();
      std::printf("count %zu: last %g, answered from %.*s\n", length, static_cast<double>(result[length - 1]),
                  static_cast<int>(kiln::to_string(origin).size()), kiln::to_string(origin).data());
    }
    std::printf("%lld tunes for %zu lengths\n", static_cast<long long>(engine.stats().tunes), host.size());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
