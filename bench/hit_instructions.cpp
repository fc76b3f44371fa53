// Repeats each stage of a hot launch, for an instrument that counts instructions inside `measured` (bench/callgrind-hit).
//
//   bench_hit_instructions --build
//   bench_hit_instructions COUNT "OP axis=value..." [--overlay FILE] [--templates FOLDER]...
//
// What the call needs is compiled into the overlay when it lacks it. Prints the plan, then the stages in their order. Nothing is timed.
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "cli/build.hpp"
#include "hot_call.hpp"

namespace {

using Stage = void (bench::HotCall::*)() const;

struct Named {
  const char* name;
  Stage stage;
};
constexpr std::array<Named, 11> stages = {
    Named{"nothing", &bench::HotCall::do_nothing},  Named{"bucket", &bench::HotCall::find_bucket},
    Named{"look-up", &bench::HotCall::look_up},     Named{"frame", &bench::HotCall::fill_frame},
    Named{"admission", &bench::HotCall::admit},     Named{"arrange", &bench::HotCall::arrange},
    Named{"Op::bind", &bench::HotCall::bind},       Named{"kiln_bind", &bench::HotCall::bind_from_c},
    Named{"bare", &bench::HotCall::launch_bare},    Named{"Plan::launch", &bench::HotCall::launch_plan},
    Named{"Op::launch", &bench::HotCall::launch_op}};

}  // namespace

/// By this name the instrument finds it.
extern "C" [[gnu::noinline]] void measured(const bench::HotCall& call, Stage stage, int count) {
  for (int i = 0; i < count; ++i) (call.*stage)();
}

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--build") {
    fmt::print("{}\n", kiln::build());
    return 0;
  }
  if (argc < 3) return 2;
  try {
    kiln::Options options;
    options.on_miss = kiln::MissPolicy::nearest;
    for (int i = 3; i + 1 < argc; i += 2) {
      if (std::string_view(argv[i]) == "--overlay") options.overlay = argv[i + 1];
      if (std::string_view(argv[i]) == "--templates") options.template_paths.emplace_back(argv[i + 1]);
    }
    bench::Setting setting(options);
    const kiln::cuda::Stream stream;
    const bench::HotCall call(setting, bench::Asked::parse(argv[2]), stream.handle());
    fmt::print("{} {}, {} pass(es)\n", call.plan.implementation(), call.plan.config(), call.passes());
    for (const Named& each : stages) {
      for (int i = 0; i < 3; ++i) (call.*each.stage)();
      measured(call, each.stage, std::atoi(argv[1]));
      fmt::print("{}\n", each.name);
    }
    return 0;
  } catch (const kiln::Error& error) {
    fmt::print(stderr, "bench_hit_instructions: {}\n", error.what());
    return 3;
  }
}
