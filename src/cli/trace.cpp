// kiln trace: draws a random stream of distinct problems for kiln replay.
#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/output_choice.hpp"
#include "cli/problem_set.hpp"
#include "cli/trace_draw.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

struct TraceSettings {
  std::string op;
  std::vector<std::string> words;
  std::string distribution = "lognormal";
  OutputChoice output;
  Draw draw;
  std::vector<const CLI::Option*> of_lognormal{};
};

void declare(CLI::App& command, TraceSettings& settings) {
  command.add_option("op", settings.op, "The op, see kiln ops")->required()->type_name("OP");
  command.add_option("sizes", settings.words, "A size, a list or a range for each axis, words for types and choices")
      ->required()
      ->type_name("NAME=VALUE");
  command.add_option("--count", settings.draw.count, "The number of problems")
      ->capture_default_str()
      ->transform(whole_number_from(1, 10000000))
      ->type_name("N");
  command
      .add_option("--distribution", settings.distribution, "The distribution of sizes in a range: lognormal or uniform")
      ->capture_default_str()
      ->check(CLI::Validator(CLI::IsMember({"lognormal", "uniform"})).description(""))
      ->type_name("NAME");
  settings.of_lognormal.push_back(
      command
          .add_option("--median", settings.draw.median,
                      "The median of lognormal sizes; by default the geometric mean of the range's ends")
          ->type_name("SIZE"));
  settings.of_lognormal.push_back(
      command.add_option("--sigma", settings.draw.sigma, "The standard deviation of the logarithm of lognormal sizes")
          ->capture_default_str()
          ->transform(number_from(0, 10))
          ->type_name("X"));
  command.add_option("--seed", settings.draw.seed, "The seed; equal seeds give equal streams")
      ->capture_default_str()
      ->transform(any_whole_number())
      ->type_name("N");
  declare_output(command, settings.output, "The file to write, instead of the standard output", "FILE");
}

std::string text_of(const TraceSettings& settings, const manifest::Op& op, const std::vector<Problem>& problems) {
  std::string text = fmt::format("# {} distinct problems, {} sizes, seed {}: {} {}\n", problems.size(),
                                 settings.distribution, settings.draw.seed, op.name, fmt::join(settings.words, " "));
  for (const Problem& problem : problems) text += fmt::format("{} {}\n", op.name, manifest::to_string(op, problem));
  return text;
}

/// Throws Error(bad_input) for an option of another distribution than the one asked for.
void check_distribution(const TraceSettings& settings) {
  if (settings.distribution == "lognormal") return;
  for (const CLI::Option* each : settings.of_lognormal)
    if (each->count() > 0)
      throw Error(ErrorKind::bad_input, fmt::format("{} is of lognormal sizes, and --distribution {} was given; leave "
                                                    "one of them out",
                                                    each->get_name(), settings.distribution));
}

int run(const Globals& globals, const TraceSettings& settings) {
  check_distribution(settings);
  check_output(settings.output, OutputKind::trace);
  const manifest::Catalogue ops = load_ops(globals, settings.op);
  const manifest::Op& op = find_op(ops, settings.op);
  Draw draw = settings.draw;
  draw.distribution = settings.distribution == "uniform" ? Distribution::uniform : Distribution::lognormal;
  const std::vector<Problem> problems = draw_problems(op, parse_problem_set(op, settings.words), draw);
  const std::string text = text_of(settings, op, problems);
  if (settings.output.path.empty()) {
    print(text);
    return exit_good;
  }
  write_text(settings.output, OutputKind::trace, text);
  say_written(globals.json, settings.output, counted(static_cast<std::int64_t>(problems.size()), "distinct problem"),
              {{"distinct", problems.size()}});
  return exit_good;
}

}  // namespace

void add_trace(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<TraceSettings>(
      app, chosen, "trace", "Draw a stream of distinct problems for kiln replay", declare, run, takes_templates);
  command->footer(
      "Example:\n  kiln trace rms_norm rows=1..16384 cols=4096,8192 dtype=bf16 --count 10000 --median 1024 --seed 1 -o stream.trace");
}

}  // namespace kiln::cli
