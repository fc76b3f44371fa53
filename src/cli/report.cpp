// kiln report: what the files hold, as one HTML page.
#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/damaged_rows.hpp"
#include "cli/output.hpp"
#include "cli/output_choice.hpp"
#include "cli/problem_set.hpp"
#include "cli/report/facts.hpp"
#include "cli/report/page.hpp"
#include "cli/target.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

struct ReportSettings {
  OutputChoice output;
  std::string op, device_class;
  std::vector<std::string> workloads;
};

void declare(CLI::App& command, ReportSettings& settings) {
  declare_output(command, settings.output, "The page to write", "FILE.html")->required();
  command.add_option("--op", settings.op, "Only this op")->type_name("OP");
  add_device_class(command, settings.device_class, "Only this device class");
  command
      .add_option("--workload", settings.workloads,
                  "List the buckets of this workload that have no record; may be repeated")
      ->allow_extra_args(false)
      ->type_name("WORKLOAD.toml");
}

std::vector<std::string> names_of(const Globals& globals) {
  std::vector<std::string> names{""};  // the overlay's name is its path
  names.insert(names.end(), globals.bases.begin(), globals.bases.end());
  return names;
}

int run(const Globals& globals, const ReportSettings& settings) {
  if (!settings.device_class.empty() && !manifest::DeviceFacts::from_device_class(settings.device_class))
    throw Error(ErrorKind::bad_input,
                fmt::format("the device class '{}' does not parse; kiln devices names those that are here",
                            settings.device_class));
  check_output(settings.output, OutputKind::page);
  const manifest::Catalogue ops = load_ops(globals, settings.op);
  const report::Expected expected{settings.workloads, read_workloads(settings.workloads, ops)};
  if (!settings.op.empty()) find_op(ops, settings.op);
  require_overlay(globals);
  store::Layers layers = open_layers_to_read(globals);
  const auto device = settings.device_class.empty() ? present_device(globals) : std::nullopt;
  const report::Filter filter{settings.op, settings.device_class, device ? device->facts.device_class() : ""};
  const Json facts = report::gather(ops, layers, names_of(globals), filter, expected);
  const std::string page = report::page_of(facts);
  write_text(settings.output, OutputKind::page, page);
  if (globals.json)
    print_json({{"event", "reported"},
                {"file", settings.output.path},
                {"records", facts["records_found"]},
                {"missing", facts["missing"]["found"]},
                {"bytes", page.size()}});
  else
    say_written(false, settings.output,
                fmt::format("{}, {}", counted(facts["records_found"].get<std::int64_t>(), "record"),
                            format_bytes(static_cast<std::int64_t>(page.size()))),
                {});
  say_damaged(globals, layers);
  return exit_good;
}

}  // namespace

void add_report(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<ReportSettings>(
      app, chosen, "report", "Write an HTML report: records, curves, candidates, roofline, what is stale or missing",
      declare, run, takes_all);
  command->footer(
      "One file that asks for nothing from outside. The same files and the same build give the same page. It names no home\n"
      "folder.\n"
      "Examples:\n  kiln report -o report.html --base h200.kiln\n"
      "  kiln report -o report.html --base h200.kiln --workload llama3_8b.toml");
}

}  // namespace kiln::cli
