#include "cold/plans.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

#include "cold/prepare.hpp"
#include "cold/stages.hpp"
#include "cuda/device.hpp"
#include "kiln/kiln.hpp"

namespace kiln::bench {
namespace {

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::int64_t device_bytes_taken() {
  std::size_t free = 0, total = 0;
  cuda::check(cuda::Driver::get().cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return static_cast<std::int64_t>(total - free);
}

void say(const char* name, std::int64_t number) { fmt::print("{} {}\n", name, number); }

}  // namespace

void run_plans(const std::filesystem::path& base, std::size_t count, Loading loading) {
  const cuda::Context context(0);
  const cuda::Context::Scope scope(context);
  const std::int64_t resident = resident_bytes(), device = device_bytes_taken();
  const std::int64_t begun = now_ns();
  Options options;
  options.bases = {base};
  options.overlay = "";
  options.on_miss = MissPolicy::error;
  options.loading = loading;
  const Engine engine(options);
  say("engine", now_ns() - begun);
  const std::int64_t before_ops = now_ns();
  const Op norm = engine.op("rms_norm"), softmax = engine.op("softmax");
  say("ops", now_ns() - before_ops);
  std::vector<std::int64_t> each_ns;
  for (const PlanProblem& each : plan_problems(count)) {
    const Op& op = std::string_view(each.op) == "rms_norm" ? norm : softmax;
    const Problem problem = op.problem({{"rows", each.rows}, {"cols", each.cols}, {"dtype", each.dtype}});
    const std::int64_t before = now_ns();
    op.plan(problem);
    each_ns.push_back(now_ns() - before);
  }
  say("all", now_ns() - begun);
  say("resident_bytes", resident_bytes() - resident);
  say("device_bytes", device_bytes_taken() - device);
  say("compiles", engine.stats().compiles);
  std::sort(each_ns.begin(), each_ns.end());
  say("plan_p50", each_ns[each_ns.size() / 2]);
  say("plan_p99", each_ns[each_ns.size() * 99 / 100]);
  say("plan_most", each_ns.back());
}

}  // namespace kiln::bench
