// The shortest use of Kiln in C++, which README shows. main.cpp is the longer one.
#include <kiln/kiln.hpp>

void normalise_once(const kiln::Tensor& x, const kiln::Tensor& weight, const kiln::Tensor& y, kiln::Stream stream) {
  kiln::Options options;                        // make one engine for a device, and each op and binding once
  options.bases = {"service.kiln"};             // tuned ahead, shipped beside the program
  options.on_miss = kiln::MissPolicy::nearest;  // production: never tune
  kiln::Engine engine(options);
  kiln::Op norm = engine.op("rms_norm");
  kiln::Binding call = norm.binding({}, {{"epsilon", 1e-6}});
  norm.bind(call, {{norm.tensor("x"), x}, {norm.tensor("weight"), weight}, {norm.tensor("y"), y}});  // each batch
  norm.launch(call.problem, call.arguments, stream);
}
