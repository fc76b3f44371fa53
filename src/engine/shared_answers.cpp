#include "engine/shared_answers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "answer/serving.hpp"
#include "cuda/device.hpp"
#include "engine/state.hpp"
#include "kiln/error.hpp"
#include "remote/open.hpp"

namespace kiln::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds first_pause{50}, longest_pause{2000};
constexpr std::chrono::milliseconds write_pause{200};  // a crash loses what was fetched within it
/// Of one try. Look-ups in the overlay wait for it, and so does the end of the engine.
constexpr std::chrono::milliseconds write_patience{20};
constexpr std::chrono::seconds list_limit{5};

store::RemotePlace place_of(const manifest::Site& site, std::string key) {
  store::Record record;
  record.key = std::move(key);
  record.op = site.op->name;
  record.revision = site.op->revision;
  record.device_class = site.device->device_class_for(*site.op);
  record.regime = manifest::to_string(site.regime);
  return store::place_of(record);
}

store::RemotePlace place_of(const manifest::Bucket& bucket) { return place_of(bucket, bucket.key()); }

/// Whether a base with this record would serve its bucket.
bool is_usable(const EngineState& engine, const store::Record& record) try {
  const manifest::Op* const op = engine.ops.op(record.op);
  const auto edge = op != nullptr ? manifest::parse_bucket(*op, record.bucket) : std::nullopt;
  if (!edge) return false;
  const manifest::Bucket bucket({*op, engine.context.info().facts, engine.options.regime}, *edge);
  return bucket.key() == record.key && answer::servings_of(bucket, record).any();
} catch (const Error&) {
  return false;
}

}  // namespace

std::unique_ptr<SharedAnswers> SharedAnswers::open(EngineState& engine) {
  const std::string address = remote::address_of(engine.options);
  if (address.empty()) return nullptr;
  std::vector<std::string> warnings;  // of keys, which the files' tell too
  remote::ClientSettings settings = remote::client_settings(engine.options, warnings);
  for (const std::string& each : warnings) engine.warn(each);
  settings.is_usable = [&engine](const store::Record& record) { return is_usable(engine, record); };
  settings.has_code = [&engine](const manifest::Digest& key) { return engine.layers.find_cubin(key).has_value(); };
  settings.warn = [&engine](const std::string& warning) { engine.warn(warning); };
  return std::make_unique<SharedAnswers>(engine, remote::open(address), std::move(settings));
}

SharedAnswers::SharedAnswers(EngineState& engine, std::unique_ptr<store::RemoteStore> store,
                             remote::ClientSettings settings)
    : engine_(engine), client_(std::move(store), std::move(settings)) {}

SharedAnswers::~SharedAnswers() {
  is_ending_ = true;
  engine_.pool.interrupt();
}

bool SharedAnswers::bring(const manifest::Bucket& bucket) {
  const auto rows = client_.fetch(place_of(bucket));
  if (rows) keep(*rows);
  return rows.has_value();
}

void SharedAnswers::bring_all(const manifest::Site& site) {
  for (const remote::Rows& rows : client_.list(place_of(site, {}).space, list_limit))
    if (!engine_.layers.find_record(rows.record.key)) keep(rows);
}

void SharedAnswers::keep(const remote::Rows& rows) {
  const auto own = engine_.layers.overlay().find_record(rows.record.key, true);  // as an inspection, not a use
  const auto replaces = own && !is_usable(engine_, *own) ? store::Replaces::any : store::Replaces::worse;
  if (engine_.layers.put_later({&rows.record, 1}, rows.code, replaces)) write_soon();
}

void SharedAnswers::write_soon() {
  if (will_write_.exchange(true)) return;
  const auto write = [this] {
    will_write_ = false;  // before the write: rows that come meanwhile need another one
    if (!engine_.layers.write_queued(write_patience)) write_soon();
  };
  if (!client_.call_after(write_pause, write)) will_write_ = false;  // a later row's write takes this one too
}

bool SharedAnswers::wait_until(Clock::time_point end) { return client_.wait_until(end) && write_until(end); }

bool SharedAnswers::write_until(Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return !engine_.layers.has_queued();
    if (engine_.layers.write_queued(std::min<std::chrono::milliseconds>(left, write_patience))) return true;
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(left, write_patience));
  }
}

void SharedAnswers::bring_when_there(const manifest::Bucket& bucket, std::function<void()> then) {
  const store::RemotePlace place = place_of(bucket);
  {
    const std::lock_guard lock(mutex_);
    if (!awaited_.insert(place.key).second) return;
  }
  client_.fetch_when_there(place, [this, given = std::move(then), text = bucket.text()](const remote::Rows& rows) {
    try {
      // What this thread loads must not end other threads' captures.
      const cuda::RelaxedCapture relaxed;
      const cuda::Context::Scope scope(engine_.context);
      keep(rows);
      if (!is_ending_) given();
    } catch (const std::exception& error) {
      if (!is_ending_)
        engine_.warn(
            fmt::format("{} keeps its fallback, though the shared store has its record: {}", text, error.what()));
    }
  });
}

SharedAnswers::Turn SharedAnswers::await_turn(const manifest::Bucket& bucket, std::chrono::steady_clock::time_point end,
                                              const std::function<void()>& while_waiting) {
  const store::RemotePlace place = place_of(bucket);
  for (std::chrono::milliseconds pause = first_pause;; pause = std::min(2 * pause, longest_pause)) {
    const remote::Client::Claimed claimed = client_.claim(place);
    if (claimed != remote::Client::Claimed::unknown && bring(bucket)) {  // another machine may have published it since
      client_.release(place);
      return Turn::found;
    }
    if (claimed != remote::Client::Claimed::elsewhere) return Turn::ours;
    if (std::chrono::steady_clock::now() >= end) return Turn::elsewhere;
    while_waiting();
    std::this_thread::sleep_for(pause);
  }
}

void SharedAnswers::release(const manifest::Bucket& bucket) { client_.release(place_of(bucket)); }

void SharedAnswers::publish(const store::Record& record, std::vector<store::CubinRow> code) {
  client_.publish(record, std::move(code));
}

}  // namespace kiln::engine
