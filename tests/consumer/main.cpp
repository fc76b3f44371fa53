#include <kiln/kiln.hpp>

#include <cstdint>
#include <iostream>

// rms_norm of rows of 4096, with its names looked up once. One serves all lengths and threads.
struct Norm {
  kiln::Op op;
  kiln::Problem sizes = op.problem({{"rows", 1}, {"cols", 4096}, {"dtype", "bf16"}});
  kiln::Arguments values = op.arguments({{"epsilon", 1e-6}});
  kiln::AxisId rows = op.axis("rows");
  kiln::TensorId x = op.tensor("x"), weight = op.tensor("weight"), y = op.tensor("y");
};

// x, y: rows x 4096 of bf16, weight: 4096 of bf16, all in device memory of the caller. Only the first launch of a bucket can miss.
void normalise(const Norm& norm, const void* x, const void* weight, void* y, std::int64_t rows, kiln::Stream stream) {
  kiln::Problem problem = norm.sizes;
  kiln::Arguments arguments = norm.values;
  problem[norm.rows] = rows;
  arguments.set(norm.x, x).set(norm.weight, weight).set(norm.y, y);
  norm.op.launch(problem, arguments, stream);
}

int main() try {
  kiln::Options options;
  options.bases = {"service.kiln"};             // tuned ahead, shipped beside the program
  options.on_miss = kiln::MissPolicy::nearest;  // production: never tune
  const kiln::Engine engine(options);           // one a device; without a driver it throws
  for (const std::string& warning : engine.warnings()) std::cerr << warning << '\n';  // a base that is missing, say
  const Norm norm{engine.op("rms_norm")};
  std::cout << norm.op.name() << " is ready\n";  // from here on: normalise(norm, x, weight, y, rows, stream)
} catch (const kiln::Error& error) {             // its message says what was asked, what was found, and what to do
  std::cerr << to_string(error.kind()) << ": " << error.what() << '\n';
  return error.kind() == kiln::ErrorKind::no_driver || error.kind() == kiln::ErrorKind::no_device ? 3 : 1;
}
