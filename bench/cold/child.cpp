#include "cold/child.hpp"

#include "cold/by_hand.hpp"
#include "cold/norm_case.hpp"
#include "cold/stages.hpp"
#include "jit/specialisation.hpp"
#include "kiln/kiln.hpp"

namespace kiln::bench {
namespace {

Options options_of(const ColdStart& start) {
  Options options;
  options.bases = start.bases;
  options.overlay = start.overlay;
  options.on_miss = start.work == Work::kiln ? MissPolicy::error : MissPolicy::nearest;
  return options;
}

/// The engine outlives the measured span: a service keeps it.
Engine launch_by_kiln(const ColdStart& start, const NormCase& norm, CUstream stream, Stages& stages) {
  Engine engine(options_of(start));
  stages.reached("engine");
  const Op op = engine.op("rms_norm");
  const Problem problem = op.problem({{"rows", norm_rows}, {"cols", norm_cols}, {"dtype", "bf16"}});
  const Arguments arguments =
      op.arguments({{"x", norm.x()}, {"weight", norm.weight()}, {"y", norm.y()}, {"epsilon", norm_epsilon}});
  stages.reached("op");
  op.launch(problem, arguments, stream);
  return engine;
}

}  // namespace

void run_cold_start(const ColdStart& start) {
  Stages stages(start.began_ns);
  stages.reached("main");
  const cuda::Context context(0);
  const cuda::Context::Scope scope(context);
  const cuda::Stream stream;
  stages.reached("context");
  NormCase norm;
  stages.reached("tensors");
  const std::int64_t faults = Stages::page_faults();
  std::optional<Engine> engine;
  switch (start.work) {
    case Work::nothing: break;
    case Work::cubin_by_hand: launch_by_hand(read_cubin(start.cubin), norm, stream.handle()); break;
    case Work::nvrtc_by_hand: {
      const auto cubin = compile_by_hand(jit::default_arch(context.info().facts.sm()));
      stages.reached("compiled");
      launch_by_hand(cubin, norm, stream.handle());
      break;
    }
    case Work::kiln:
    case Work::kiln_compiling: engine = launch_by_kiln(start, norm, stream.handle(), stages); break;
  }
  stages.reached("launched");
  fmt::print("{} {}\n", page_faults, Stages::page_faults() - faults);
  stream.synchronize();
  norm.fetch();
  stages.reached("result");
  if (start.work != Work::nothing) norm.check();
  stages.reached("checked");
  if (start.work == Work::kiln && engine->stats().compiles > 0)
    throw Error(ErrorKind::not_tuned, "the shipped file did not serve: something was compiled");
}

}  // namespace kiln::bench
