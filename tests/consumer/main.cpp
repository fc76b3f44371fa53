#include <kiln/kiln.hpp>

#include <cstdint>
#include <iostream>

// x, y: rows x 4096 of bf16, weight: 4096 of bf16, all in device memory of the caller. Only the first launch of a bucket can miss.
void normalise(const kiln::Op& op, const void* x, const void* weight, void* y, std::int64_t rows, kiln::Stream stream) {
  const kiln::Problem problem = op.problem({{"rows", rows}, {"cols", 4096}, {"dtype", "bf16"}});
  const kiln::Arguments arguments = op.arguments({{"x", x}, {"weight", weight}, {"y", y}, {"epsilon", 1e-6}});
  op.launch(problem, arguments, stream);
}

int main() {
  try {
    kiln::Options options;
    options.bases = {"llama3_8b.kiln"};           // tuned ahead, shipped beside the program
    options.on_miss = kiln::MissPolicy::nearest;  // production: never tune
    const kiln::Engine engine(options);
    for (const std::string& warning : engine.warnings()) std::cerr << warning << '\n';  // a base that is missing, say
    const kiln::Op op =
        engine.op("rms_norm");                // keep both: one engine a device, one op for all its lengths and threads
    std::cout << op.name() << " is ready\n";  // from here on: normalise(op, x, weight, y, rows, stream)
    return 0;
  } catch (const kiln::Error& error) {  // its message says what was asked, what was found, and what to do
    std::cerr << to_string(error.kind()) << ": " << error.what() << '\n';
    return error.kind() == kiln::ErrorKind::no_driver || error.kind() == kiln::ErrorKind::no_device ? 3 : 1;
  }
}
