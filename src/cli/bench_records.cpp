// kiln bench, and kiln bench records: times the records of this device again.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "answer/resolver.hpp"
#include "answer/serving.hpp"
#include "cli/bench/contest.hpp"
#include "cli/bench/idle.hpp"
#include "cli/build.hpp"
#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/record_facts.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "tune/tune_bucket.hpp"

namespace kiln::cli {
namespace {

using bench::Timed;

struct BenchRecordsSettings {
  std::string against, op;
  std::size_t limit = 0;
  double tolerance_percent = 5;
};

void declare(CLI::App& command, BenchRecordsSettings& settings) {
  command
      .add_option("--against", settings.against,
                  "Also compare with the costs in this file (.kiln or .jsonl), such as that of an earlier release")
      ->type_name("FILE");
  command.add_option("--op", settings.op, "Only this op")->type_name("OP");
  command.add_option("--limit", settings.limit, "At most this many records, in the order of their keys")
      ->transform(whole_number_from(1, most_counted))
      ->type_name("N");
  command
      .add_option("--tolerance", settings.tolerance_percent,
                  "Report only what is slower by more than this; 5 by default")
      ->transform(number_from(0, 1e6))
      ->type_name("PERCENT");
}

/// A choice of a record of this device. It can serve.
struct Subject {
  manifest::Bucket bucket;
  double baseline_ns = 0;  // the stored time, when it is of the sizes that are timed; else 0
  answer::Serving serving;
  [[nodiscard]] const Problem& at() const noexcept { return serving.at(); }
  [[nodiscard]] manifest::Variant config() const { return serving; }
};

/// The result of timing a subject again.
struct Checked {
  Timed now, baseline;            // `baseline` is empty when the default is the config or is not legal
  std::int64_t blocks = 0;        // of a launch that leaves most multiprocessors idle
  std::int64_t wider_blocks = 0;  // of the fastest launch with more blocks
  double wider_ns = 0;
  double against_ns = 0;
  std::vector<std::string> findings;
};

struct Subjects {
  std::vector<Subject> all;  // grouped by record
  std::int64_t records = 0;
  std::int64_t unusable = 0;  // choices that cannot serve, also of records without a usable one
  std::int64_t of_teams = 0;  // records that only the ranks of a team could time
};

/// Returns, for each record that a look-up finds, the choices that can serve here.
std::vector<std::vector<Subject>> servings_by_record(Tools& tools, const manifest::Catalogue& ops,
                                                     const std::string& op_name, Subjects& subjects) {
  const manifest::DeviceFacts& device = tools.facts();
  std::vector<std::vector<Subject>> by_record;
  std::set<std::string> seen;
  for (const manifest::Op& op : ops.all()) {
    if (!op_name.empty() && op.name != op_name) continue;
    for (const auto& listed : tools.layers.records(op.name)) {
      const Regime regime =
          listed.value.regime == manifest::to_string(Regime::hot_l2) ? Regime::hot_l2 : Regime::cold_l2;
      const auto bucket = manifest::parse_bucket(op, listed.value.bucket);
      manifest::DeviceFacts of_record = device;
      if (const auto recorded = manifest::DeviceFacts::from_device_class(listed.value.device_class))
        of_record.link = recorded->link;
      if (!bucket || manifest::Bucket({op, of_record, regime}, *bucket).key() != listed.value.key ||
          !seen.insert(listed.value.key).second)
        continue;
      if (op.is_of_team()) {
        ++subjects.of_teams;
        continue;
      }
      const manifest::Bucket asked({op, device, regime}, *bucket);
      const answer::Resolution found = answer::resolve(asked, asked.edge, tools.layers, false);
      const store::Record& record = found.is_hit() ? found.record->value : listed.value;
      answer::Servings servings = answer::servings_of(asked, record);
      subjects.unusable += servings.unusable;
      if (!servings.any()) continue;
      std::vector<Subject>& configs = by_record.emplace_back();
      for (auto* role : {&servings.fastest, &servings.without_library})
        for (answer::Serving& each : *role) {
          const double baseline_ns = each.at() == asked.edge ? record.baseline_ns : 0.0;
          configs.push_back({asked, baseline_ns, std::move(each)});
        }
    }
  }
  std::ranges::sort(by_record,
                    [](const auto& a, const auto& b) { return reads_before(a[0].bucket.key(), b[0].bucket.key()); });
  return by_record;
}

Subjects subjects_of(Tools& tools, const manifest::Catalogue& ops, const BenchRecordsSettings& settings) {
  Subjects subjects;
  auto by_record = servings_by_record(tools, ops, settings.op, subjects);
  if (settings.limit > 0 && by_record.size() > settings.limit) by_record.resize(settings.limit);
  subjects.records = static_cast<std::int64_t>(by_record.size());
  for (auto& record : by_record) std::ranges::move(record, std::back_inserter(subjects.all));
  return subjects;
}

/// Returns the other file's choice of the same role and upper sizes, or nothing.
std::optional<store::Choice> earlier_of(const Subject& subject, store::File* against) {
  const auto record = against == nullptr ? std::nullopt : against->find_record(subject.bucket.key());
  if (!record) return std::nullopt;
  for (const store::Choice& each : record->choices) {
    const auto region = manifest::parse_region(*subject.bucket.op, subject.bucket.edge, each.sizes);
    if (each.role == subject.serving.choice.role && region && region->high == subject.at()) return each;
  }
  return std::nullopt;
}

void judge_speed(Checked& checked, const Subject& subject, const std::optional<store::Choice>& earlier,
                 double tolerance) {
  const double drift = bench::change_of(checked.baseline.cost, subject.baseline_ns);
  const auto say_slower = [&](const store::Choice& then, std::string_view what) {
    if (!bench::is_slower(checked.now.cost, then, tolerance)) return;
    std::string text = fmt::format("{} than {} ({})", format_ratio(bench::change_of(checked.now.cost, then.cost_ns)),
                                   what, format_time(then.cost_ns));
    if (drift > 1 + tolerance)
      text +=
          fmt::format("; the default takes {} as long as well, so the machine may have changed", format_ratio(drift));
    checked.findings.push_back("slower: " + text);
  };
  say_slower(subject.serving.choice, "stored");
  if (earlier) say_slower(*earlier, "in the file compared with");
  if (checked.baseline.ok() && bench::is_slower(checked.now.samples_ns, checked.baseline.samples_ns, tolerance))
    checked.findings.push_back(
        fmt::format("beaten: the default takes {}", format_time(checked.baseline.cost.median_ns)));
}

/// Reports a launch of few blocks only when more blocks are faster: few are best for some problems.
void judge_idle(Checked& checked, std::span<const manifest::Variant> wider, std::span<const Timed> timed,
                const Subject& subject, const manifest::DeviceFacts& device, double tolerance) {
  for (std::size_t i = 0; i < wider.size(); ++i) {
    if (!timed[i].ok() || !bench::is_slower(checked.now.samples_ns, timed[i].samples_ns, tolerance)) continue;
    if (checked.wider_blocks > 0 && timed[i].cost.median_ns >= checked.wider_ns) continue;
    if (checked.wider_blocks > 0) checked.findings.pop_back();
    checked.wider_blocks = bench::blocks_of(subject.bucket, wider[i], subject.at());
    checked.wider_ns = timed[i].cost.median_ns;
    checked.findings.push_back(
        fmt::format("idle: {} and takes {}, {} as long",
                    bench::text_of_idle(checked.blocks, wider[i].name(), checked.wider_blocks, device),
                    format_time(checked.wider_ns), format_ratio(checked.wider_ns / checked.now.cost.median_ns)));
  }
}

Checked check(Tools& tools, const Subject& subject, store::File* against, double tolerance) {
  const manifest::DeviceFacts& device = tools.facts();
  std::vector<manifest::Variant> contenders{subject.config()};
  const answer::Usable usual = answer::default_for(subject.bucket, subject.at());
  const manifest::Variant baseline = usual;
  const bool has_baseline = usual.implementation != nullptr && baseline != subject.config();
  if (has_baseline) contenders.push_back(baseline);
  const auto idle = bench::idle_launch(subject.bucket, subject.config(), subject.at());
  const std::size_t first_wider = contenders.size();
  if (idle) contenders.insert(contenders.end(), idle->wider.begin(), idle->wider.end());
  const auto timed = bench::contest(tools, {subject.bucket, subject.at()}, contenders);
  Checked checked;
  checked.now = timed.front();
  if (has_baseline) checked.baseline = timed[1];
  if (!checked.now.ok()) {
    checked.findings.push_back(fmt::format("{}: {}", to_string(checked.now.verdict),
                                           checked.now.reason.substr(0, checked.now.reason.find('\n'))));
    return checked;
  }
  const auto earlier = earlier_of(subject, against);
  if (earlier) checked.against_ns = earlier->cost_ns;
  judge_speed(checked, subject, earlier, tolerance);
  if (idle) {
    checked.blocks = idle->blocks;
    judge_idle(checked, std::span(contenders).subspan(first_wider), std::span(timed).subspan(first_wider), subject,
               device, tolerance);
  }
  return checked;
}

Json json_of(const Subject& subject, const Checked& checked) {
  const store::Choice& stored = subject.serving.choice;
  return {{"event", "choice"},
          {"build", build()},
          {"key", subject.bucket.key()},
          {"role", to_string(stored.role)},
          {"sizes", stored.sizes},
          {"config", config_of(stored)},
          {"stored_ns", stored.cost_ns},
          {"now_ns", checked.now.ok() ? Json(checked.now.cost.median_ns) : Json()},
          {"low_ns", checked.now.ok() ? Json(checked.now.cost.low_ns) : Json()},
          {"high_ns", checked.now.ok() ? Json(checked.now.cost.high_ns) : Json()},
          {"default_stored_ns", subject.baseline_ns > 0 ? Json(subject.baseline_ns) : Json()},
          {"default_now_ns", checked.baseline.ok() ? Json(checked.baseline.cost.median_ns) : Json()},
          {"against_ns", checked.against_ns > 0 ? Json(checked.against_ns) : Json()},
          {"few_blocks", checked.blocks > 0 ? Json(checked.blocks) : Json()},
          {"findings", checked.findings}};
}

void add_row(Table& table, const Subject& subject, const Checked& checked) {
  const store::Choice& stored = subject.serving.choice;
  table.row({subject.bucket.op->name, manifest::display_text(*subject.bucket.op, subject.bucket.edge),
             stored.sizes + (stored.role == store::Role::fastest ? "" : " without library"), config_of(stored),
             format_time(stored.cost_ns), checked.now.ok() ? format_time(checked.now.cost.median_ns) : "-",
             format_ratio(bench::change_of(checked.now.cost, stored.cost_ns)),
             checked.baseline.ok() ? format_time(checked.baseline.cost.median_ns) : "",
             checked.findings.empty()
                 ? (checked.blocks > 0 ? fmt::format("{} blocks, and more are no faster", checked.blocks) : "")
                 : fmt::format("{}", fmt::join(checked.findings, "; "))});
}

/// Turns the failure of one bucket into a finding.
Checked check_or_say(Tools& tools, const Subject& subject, store::File* against, double tolerance) {
  try {
    return check(tools, subject, against, tolerance);
  } catch (const Error& error) {
    if (!tune::is_of_one_bucket(error.kind())) throw;
    Checked checked;
    checked.findings.push_back(fmt::format("not timed: {}", error.what()));
    return checked;
  }
}

int run(const Globals& globals, const BenchRecordsSettings& settings) {
  const manifest::Catalogue ops = load_ops(settings.op.empty() ? silenced(globals) : globals);
  if (!settings.op.empty()) find_op(ops, settings.op);
  require_overlay(globals);
  const auto against = settings.against.empty() ? nullptr : open_records(settings.against);
  Tools tools(globals);
  require_readable_overlay(globals, tools.layers);
  const Interrupt interrupt;
  const cuda::Context::Scope scope(tools.context);
  const Subjects subjects = subjects_of(tools, ops, settings);
  std::int64_t found = 0, done = 0;
  StatusLine line(!globals.json && !globals.quiet && is_terminal());
  Table table({"op", "bucket", "sizes", "config", "> stored", "> now", "> change", "> default now", "found"});
  for (const Subject& subject : subjects.all) {
    if (Interrupt::requested()) break;
    line.show(
        fmt::format("{}/{} {} {}", ++done, subjects.all.size(), subject.bucket.text(), subject.serving.choice.sizes));
    const Checked checked = check_or_say(tools, subject, against.get(), settings.tolerance_percent / 100);
    found += checked.findings.empty() ? 0 : 1;
    if (globals.json) print_json(json_of(subject, checked));
    add_row(table, subject, checked);
  }
  line.clear();
  if (globals.json)
    print_json({{"event", "checked"},
                {"build", build()},
                {"records", subjects.records},
                {"configs", done},
                {"found", found},
                {"unusable", subjects.unusable},
                {"of_teams", subjects.of_teams}});
  else
    print(fmt::format("{}{} of {} of this device {} timed again, {} with a finding\n",
                      table.empty() ? "" : table.text() + "\n", counted(done, "config"),
                      counted(subjects.records, "record"), verb(done, "was", "were"), format_count(found)));
  if (subjects.unusable > 0 && !globals.json && !globals.quiet)
    note(fmt::format("{} cannot serve, not declared or not legal; kiln tune replaces {}",
                     counted(subjects.unusable, "config"), verb(subjects.unusable, "it", "them")));
  if (subjects.of_teams > 0 && !globals.json && !globals.quiet)
    note(fmt::format("{} of ops of a team {} not timed, which takes all ranks", counted(subjects.of_teams, "record"),
                     verb(subjects.of_teams, "was", "were")));
  if (const auto all = static_cast<std::int64_t>(subjects.all.size()); done < all)
    throw Error(ErrorKind::interrupted,
                fmt::format("interrupted after {} of {}; the others were not timed", done, counted(all, "config")));
  return found > 0 ? exit_wrong : exit_good;
}

void add_bench_records(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<BenchRecordsSettings>(
      app, chosen, "records", "Time the records of this device again, and report those that are slower or wrong",
      declare, run, takes_all);
  command->footer(
      "Each config of each record is verified on fresh data and timed, alternating with the op's default, at the largest sizes that it\n"
      "serves. Reported are: configs with wrong results; configs slower than stored, or than in FILE, by more than the tolerance and\n"
      "with disjoint intervals; configs slower than the default; and launches that leave most multiprocessors idle while a config\n"
      "with more blocks is faster.\n"
      "Examples:\n  kiln bench records --base release.kiln\n  kiln bench records --op gemm --limit 20 --against last-release.jsonl\n"
      "Exit status 1: something is reported.");
}

}  // namespace

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
