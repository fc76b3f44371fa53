#include "cli/tune_progress.hpp"

#include <fmt/format.h>

#include <array>

#include <string_view>

#include "cli/units.hpp"

namespace kiln::cli {
namespace {

constexpr int bar_width = 20;

std::string_view name_of(TuneEvent::Kind kind) {
  switch (kind) {
    case TuneEvent::Kind::begun: return "begun";
    case TuneEvent::Kind::candidate: return "candidate";
    case TuneEvent::Kind::finished: return "finished";
  }
  return "unknown";
}

}  // namespace

std::string progress_text(const TuneEvent& event, double seconds) {
  std::string text = fmt::format("{} {}  {} {}/{}", event.op, event.bucket,
                                 bar(static_cast<double>(event.done), static_cast<double>(event.total), bar_width),
                                 event.done, event.total);
  if (event.done > 0 && seconds > 0) {
    const double rate = static_cast<double>(event.done) / seconds;
    text += fmt::format("  {:.1f}/s  {} left", rate, format_wait(static_cast<double>(event.total - event.done) / rate));
  }
  if (event.best_ns > 0) text += fmt::format("  best {}", format_time(event.best_ns));
  if (event.baseline_ns > 0) text += fmt::format(", default {}", format_time(event.baseline_ns));
  return text;
}

TuneProgress::TuneProgress(const Globals& globals, std::int64_t buckets)
    : TuneProgress(globals, buckets, std::array{globals.device}) {}

TuneProgress::TuneProgress(const Globals& globals, std::int64_t buckets, std::span<const int> devices)
    : json_(globals.json),
      quiet_(globals.quiet),
      buckets_(buckets),
      line_(!globals.json && !globals.quiet && is_terminal()) {
  for (const int device : devices) devices_[device];
}

void TuneProgress::count_bucket(int device) {
  const std::lock_guard lock(mutex_);
  devices_[device].bucket = ++bucket_;
}

void TuneProgress::clear() {
  const std::lock_guard lock(mutex_);
  line_.clear();
}

std::string TuneProgress::prefix(int device) const {
  const std::string number = fmt::format("[{}/{}] ", devices_.at(device).bucket, buckets_);
  return devices_.size() > 1 ? fmt::format("{}GPU {}: ", number, device) : number;
}

std::string TuneProgress::line_of_all() const {
  std::string text = fmt::format("[{}/{}]", bucket_, buckets_);
  for (const auto& [device, on] : devices_)
    if (!on.doing.empty()) text += fmt::format("  {}: {}", device, on.doing);
  return text;
}

void TuneProgress::on(const TuneEvent& event, int device) {
  const std::lock_guard lock(mutex_);
  if (event.kind == TuneEvent::Kind::begun) devices_[device].begun = seconds_now();
  if (json_) return emit_json(event, device);
  if (!quiet_) draw(event, device);
}

void TuneProgress::draw(const TuneEvent& event, int device) {
  OnDevice& on = devices_[device];
  const double seconds = seconds_now() - on.begun;
  if (event.kind != TuneEvent::Kind::finished) {
    on.doing = fmt::format("{} {} {}/{}", event.op, event.bucket, event.done, event.total);
    line_.show(devices_.size() > 1 ? line_of_all() : prefix(device) + progress_text(event, seconds),
               event.kind == TuneEvent::Kind::begun);
    return;
  }
  on.doing.clear();
  line_.clear();
  const std::string gain = event.baseline_ns > 0 ? fmt::format(", {} of the default's speed",
                                                               format_ratio(event.baseline_ns / event.cost_ns))
                                                 : std::string();
  fmt::print(stderr, "{}{} {}  {} {}  {}{}  ({} candidates in {})\n", prefix(device), event.op, event.bucket,
             event.implementation, event.config, format_time(event.cost_ns), gain, event.total, format_wait(seconds));
}

void TuneProgress::emit_json(const TuneEvent& event, int device) const {
  Json json{{"event", name_of(event.kind)}, {"op", event.op},
            {"bucket", event.bucket},       {"bucket_number", devices_.at(device).bucket},
            {"buckets", buckets_},          {"device", device},
            {"done", event.done},           {"total", event.total}};
  if (event.kind != TuneEvent::Kind::begun) {
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
  print_json(json);
}

}  // namespace kiln::cli
