// An engine of the op `scale` that compiles machine code ahead of launches, and what it tells meanwhile.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/ahead.hpp"
#include "engine/scale_engine.hpp"

namespace kiln::engine::testing {

inline constexpr auto patience = std::chrono::seconds(120);

/// What an engine compiles and tells, in order. A compile ahead whose label has a text of hold() ends only once that is
/// freed.
class Told {
 public:
  void operator()(const LogEvent& event) {
    std::unique_lock lock(mutex_);
    if (event.kind == LogEvent::Kind::swap) swaps.emplace_back(event.bucket);
    if (event.kind != LogEvent::Kind::compile) return;
    const bool is_ahead = event.text.find("compiled ahead") != std::string_view::npos;
    const auto is_held = [&] {
      return std::ranges::any_of(held_, [&](const auto& each) { return event.text.find(each) != event.text.npos; });
    };
    if (is_ahead && is_held()) ++held;
    if (is_ahead)
      CHECK_MESSAGE(freed_.wait_for(lock, patience, [&] { return !is_held(); }), "it was not freed in time");
    (is_ahead ? ahead : waited_for).emplace_back(event.text.substr(0, event.text.find(" was")));
  }
  void hold(std::set<std::string> labels = {""}) { held_ = std::move(labels); }
  void free(const std::string& label = "") {
    const std::lock_guard lock(mutex_);
    held_.erase(label);
    freed_.notify_all();
  }
  std::vector<std::string> ahead, waited_for;  // labels
  std::vector<std::string> swaps;              // buckets
  std::atomic<int> held = 0;                   // compiles that waited to be freed

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  std::set<std::string> held_;
};

inline Options ahead_options(MissPolicy on_miss, Told& told, int compile_ahead = 1) {
  Options chosen = ScaleEngine::options(on_miss);
  chosen.isolation = Isolation::worker;
  chosen.worker = KILN_WORKER_PROGRAM;
  chosen.compile_ahead = compile_ahead;
  chosen.on_log = [&told](const LogEvent& event) { told(event); };
  return chosen;
}

/// Records of some buckets, each with a config of its own, and no machine code.
inline const std::vector<std::pair<std::int64_t, std::string>>& records() {
  static const std::vector<std::pair<std::int64_t, std::string>> all{
      {16, "threads=64 vector=1"},   {32, "threads=64 vector=4"},   {64, "threads=128 vector=1"},
      {128, "threads=128 vector=4"}, {256, "threads=256 vector=1"}, {2048, "threads=256 vector=4"}};
  return all;
}

inline void put_records(ScaleEngine& engine) {
  for (const auto& [rows, config] : records()) engine.put(sized(rows, 128), {tiled(config)});
}

inline bool wait(ScaleEngine& engine) {
  return engine.engine.ahead->wait_until(std::chrono::steady_clock::now() + patience);
}

inline const std::string loaded = "threads=128 vector=1", first = "threads=64 vector=4", last = "threads=256 vector=1";

/// Launches 256 rows, which a stand-in serves: their record has `loaded` for 129 to 192 rows, `first` to 224, `last` to
/// 256, and the machine code of `loaded` alone is there.
inline void begin_in_parts(ScaleEngine& engine, bool stale = false) {
  std::vector<Chosen> choices{tiled(loaded, "rows=129..192 cols=65..128"), tiled(first, "rows=193..224 cols=65..128"),
                              tiled(last, "rows=225..256 cols=65..128")};
  for (Chosen& each : choices) each.stale = stale;
  engine.put(sized(64, 128), {tiled(loaded)});
  engine.put(sized(256, 128), choices);
  CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
  CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
}

/// Whether `happened` becomes true in time.
inline bool comes(const std::function<bool()>& happened, std::chrono::milliseconds within = patience) {
  for (const auto end = std::chrono::steady_clock::now() + within; std::chrono::steady_clock::now() < end;) {
    if (happened()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace kiln::engine::testing
