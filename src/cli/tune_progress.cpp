#include "cli/tune_progress.hpp"

#include <fmt/format.h>

#include <string_view>

#include "cli/problem_set.hpp"
#include "cli/units.hpp"

namespace kiln::cli {
namespace {

constexpr int trial_bar_width = 20;

std::string_view name_of(TuneEvent::Kind kind) {
  switch (kind) {
    case TuneEvent::Kind::waiting: return "waiting";
    case TuneEvent::Kind::begun: return "begun";
    case TuneEvent::Kind::candidate: return "candidate";
    case TuneEvent::Kind::finished: return "finished";
  }
  return "unknown";
}

Json json_of(const TuneStep& step) {
  const TuneEvent& event = step.event;
  Json json{{"event", name_of(event.kind)}, {"op", event.op},          {"bucket", event.bucket},
            {"bucket_number", step.number}, {"buckets", step.buckets}, {"device", step.device},
            {"done", event.done},           {"total", event.total}};
  if (event.kind == TuneEvent::Kind::waiting) json["reason"] = event.reason;
  if (event.kind == TuneEvent::Kind::candidate || event.kind == TuneEvent::Kind::finished) {
    json["implementation"] = event.implementation;
    json["config"] = event.config;
    json["cost_ns"] = event.cost_ns;
    json["best_ns"] = event.best_ns;
    json["baseline_ns"] = event.baseline_ns;
  }
  if (event.kind == TuneEvent::Kind::candidate) {
    json["verdict"] = event.verdict;
    if (!event.reason.empty()) json["reason"] = event.reason;
  }
  return json;
}

}  // namespace

std::string progress_text(const TuneEvent& event, double seconds) {
  std::string text = fmt::format(
      "{} {}  {} {}/{}", event.op, event.bucket,
      bar(static_cast<double>(event.done), static_cast<double>(event.total), trial_bar_width), event.done, event.total);
  if (event.done > 0 && seconds > 0) {
    const double rate = static_cast<double>(event.done) / seconds;
    text += fmt::format("  {:.1f}/s  {} left", rate, format_wait(static_cast<double>(event.total - event.done) / rate));
  }
  if (event.best_ns > 0) text += fmt::format("  best {}", format_time(event.best_ns));
  if (event.baseline_ns > 0) text += fmt::format(", default {}", format_time(event.baseline_ns));
  return text;
}

TuneProgress::TuneProgress(const Globals& globals, const manifest::Catalogue& ops, std::size_t devices)
    : ops_(ops),
      json_(globals.json),
      quiet_(globals.quiet),
      several_(devices > 1),
      line_(!globals.json && !globals.quiet && is_terminal()) {}

std::string TuneProgress::prefix(const TuneStep& step) const {
  const std::string number = fmt::format("[{}/{}] ", step.number, step.buckets);
  return several_ ? fmt::format("{}GPU {}: ", number, step.device) : number;
}

void TuneProgress::on(const TuneStep& step) {
  const std::lock_guard lock(mutex_);
  if (step.event.kind == TuneEvent::Kind::begun) devices_[step.device].begun = seconds_now();
  if (json_) return print_json(json_of(step));
  if (!quiet_) draw(step);
}

void TuneProgress::draw(TuneStep step) {
  TuneEvent& event = step.event;
  const std::string bucket = display_stored(ops_, event.op, event.bucket);
  event.bucket = bucket;
  if (event.kind == TuneEvent::Kind::waiting) {
    line_.clear();
    return note(fmt::format("{} {} waits: {}", event.op, event.bucket, event.reason));
  }
  OnDevice& on = devices_[step.device];
  const double seconds = seconds_now() - on.begun;
  if (event.kind != TuneEvent::Kind::finished) {
    on.doing = fmt::format("{} {} {}/{}", event.op, event.bucket, event.done, event.total);
    std::string all = fmt::format("[{}/{}]", step.number, step.buckets);
    for (const auto& [device, each] : devices_)
      if (!each.doing.empty()) all += fmt::format("  {}: {}", device, each.doing);
    line_.show(several_ ? all : prefix(step) + progress_text(event, seconds), event.kind == TuneEvent::Kind::begun);
    return;
  }
  on.doing.clear();
  line_.clear();
  const std::string gain = event.baseline_ns > 0 ? fmt::format(", {} of the default's speed",
                                                               format_ratio(event.baseline_ns / event.cost_ns))
                                                 : std::string();
  say(fmt::format("{}{} {}  {} {}  {}{}  ({} in {})\n", prefix(step), event.op, event.bucket, event.implementation,
                  event.config, format_time(event.cost_ns), gain,
                  event.done < event.total
                      ? fmt::format("{} of {}", format_count(event.done), counted(event.total, "candidate"))
                      : counted(event.total, "candidate"),
                  format_wait(seconds)));
}

}  // namespace kiln::cli
