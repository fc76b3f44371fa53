// Opens an engine and lists its ops; on a machine without a GPU, says so.
#include <kiln/kiln.hpp>

#include <cstdint>
#include <iostream>

/// The README's five lines, over memory and a stream of the caller.
void normalise(const void* x, const void* weight, void* y, std::int64_t rows, kiln::Stream stream) {
  kiln::Engine engine;
  kiln::Op norm = engine.op("rms_norm");
  kiln::Problem problem = norm.problem({{"rows", rows}, {"cols", 4096}, {"dtype", "bf16"}});
  kiln::Arguments arguments = norm.arguments({{"x", x}, {"weight", weight}, {"y", y}, {"epsilon", 1e-6}});
  norm.launch(problem, arguments, stream);
}

int main(int argc, char** /*argv*/) {
  kiln::Options options;
  options.overlay.emplace();  // nothing is left behind
  try {
    if (argc > 1) normalise(nullptr, nullptr, nullptr, 1, nullptr);  // refused: a missing tensor, or no driver
    const kiln::Engine engine(options);
    for (const std::string& op : engine.ops()) std::cout << op << '\n';
    return engine.ops().empty() ? 1 : 0;
  } catch (const kiln::Error& error) {
    std::cout << to_string(error.kind()) << ": " << error.what() << '\n';
    return error.kind() == kiln::ErrorKind::no_driver || error.kind() == kiln::ErrorKind::no_device ? 0 : 1;
  }
}
