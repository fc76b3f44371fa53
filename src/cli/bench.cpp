// kiln bench: measures records on the present device.
#include "cli/bench.hpp"

namespace kiln::cli {

void add_bench(CLI::App& app, Chosen& chosen) {
  CLI::App* bench =
      app.add_subcommand("bench", "Time records again; measure what sharing a record over a bucket costs");
  bench->require_subcommand(1);
  for (const auto add : {add_bench_records, add_bench_regret}) add(*bench, chosen);
  bench->footer(
      "Examples:\n  kiln bench records --op gemm\n  kiln bench regret gemm m=1..16384 n=4096 k=4096 dtype=bf16\n"
      "Each command has its own --help.");
}

}  // namespace kiln::cli
