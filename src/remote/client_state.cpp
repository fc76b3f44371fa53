#include "remote/client_state.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <vector>

#include "manifest/no_signals.hpp"
#include "store/integrity.hpp"

namespace kiln::remote {
namespace {

using Clock = std::chrono::steady_clock;
using store::RemoteFailure;
using store::RemotePlace;

constexpr int enough_writes = 4;  // of one row, each of which found another value than before

std::string new_token() {
  std::array<unsigned char, 16> bytes{};
  (void)getrandom(bytes.data(), bytes.size(), 0);
  std::string token;
  for (const unsigned char each : bytes) token += fmt::format("{:02x}", each);
  return token;
}

/// What keeps only writes from succeeding.
bool is_of_writes(RemoteFailure::Kind kind) {
  return kind == RemoteFailure::Kind::full || kind == RemoteFailure::Kind::read_only ||
         kind == RemoteFailure::Kind::refused;
}

}  // namespace

ClientState::ClientState(std::unique_ptr<store::RemoteStore> opened, ClientSettings chosen)
    : store(std::move(opened)), settings(std::move(chosen)), token(new_token()) {}

void ClientState::call(const std::function<void()>& given) {
  {
    const std::lock_guard lock(mutex);
    if (is_closing) return;
    ++calls;
  }
  try {
    given();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it reports its failures itself
  }
  const std::lock_guard lock(mutex);
  --calls;
  changed.notify_all();
}

void ClientState::tell_once(const std::string& kind, const std::string& warning) {
  {
    const std::lock_guard lock(mutex);
    if (!told.insert(kind).second) return;
  }
  if (settings.warn) call([&] { settings.warn(warning); });
}

void ClientState::failed(Does does, RemoteFailure::Kind kind, const std::string& why) {
  ++errors;
  const bool only_writes = does == Does::write && is_of_writes(kind);
  {
    const std::lock_guard lock(mutex);
    (only_writes ? writes : reads).begin();
  }
  tell_once(fmt::format("{} {}", to_string(kind), only_writes),
            fmt::format("the shared store {} for now, and asked again later: {}",
                        only_writes ? "is not written to" : "is left alone", why));
}

void ClientState::ignored(const std::string& flaw) {
  ++errors;
  tell_once(flaw, fmt::format("a value of the shared store, {}, is passed over, and each like it: it {}", store->name(),
                              flaw));
}

bool ClientState::begin_thread(const std::shared_ptr<ClientState>& state) {
  if (state->thread.joinable()) return true;
  try {
    const manifest::NoSignals no_signals;  // SIGPIPE among them
    state->thread = std::thread([state] { state->serve(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

bool ClientState::add(const std::shared_ptr<ClientState>& state, Job job) {
  const std::lock_guard lock(state->mutex);
  if (state->is_closing || state->jobs.size() >= most_waiting || !begin_thread(state)) return false;
  state->jobs.push_back(std::move(job));
  state->changed.notify_all();
  return true;
}

std::deque<ClientState::Job>::iterator ClientState::next_due() {
  const auto now = Clock::now();
  return std::find_if(jobs.begin(), jobs.end(), [&](const Job& job) { return job.not_before <= now; });
}

Clock::time_point ClientState::next_wake() const {
  auto wake = Clock::now() + std::chrono::hours(1);
  for (const Job& job : jobs) wake = std::min(wake, job.not_before);
  for (const Claim& claim : claims) wake = std::min(wake, claim.renewed + claim_term / 3);
  return wake;
}

void ClientState::serve() {
  std::unique_lock lock(mutex);
  while (!is_abandoned) {
    renew_claims(lock);
    const auto due = next_due();
    if (due != jobs.end()) {
      do_next(lock, due);
    } else if (is_closing) {
      break;
    } else {
      changed.notify_all();
      changed.wait_until(lock, next_wake());
    }
  }
  const std::function<void()> at_end = std::move(last);
  has_ended = true;
  changed.notify_all();
  lock.unlock();
  if (at_end) at_end();
}

void ClientState::do_next(std::unique_lock<std::mutex>& lock, const std::deque<Job>::iterator& due) {
  Job job = std::move(*due);
  jobs.erase(due);
  is_busy = true;
  lock.unlock();
  std::optional<Clock::time_point> again;
  try {
    again = job.work(*this);
  } catch (const std::exception&) {  // no memory
    ++errors;
  }
  lock.lock();
  is_busy = false;
  if (again && !is_closing) {
    job.not_before = *again;
    jobs.push_back(std::move(job));
  } else {
    lock.unlock();
    job.work = {};  // what it holds may be the caller's
    lock.lock();
  }
  changed.notify_all();
}

template <class Ask>
auto ClientState::attempt(Does does, Ask&& ask, std::chrono::milliseconds limit)
    -> std::optional<decltype(ask(Clock::time_point{}))> {
  {
    const std::lock_guard lock(mutex);
    if (is_quiet(does)) return std::nullopt;
    asking_since = Clock::now();
  }
  const auto answered = [&] {
    const std::lock_guard lock(mutex);
    asking_since = {};
  };
  try {
    auto answer = ask(Clock::now() + limit);
    answered();
    const std::lock_guard lock(mutex);
    reads.end();
    if (does == Does::write) writes.end();
    return answer;
  } catch (const RemoteFailure& failure) {
    answered();
    failed(does, failure.kind(), failure.what());
  } catch (const std::exception& failure) {
    answered();
    failed(does, RemoteFailure::Kind::damaged, fmt::format("{}: {}", store->name(), failure.what()));
  }
  return std::nullopt;
}

std::optional<SealedRow> ClientState::accepted(Opened<SealedRow> opened) {
  if (!opened.row)
    ignored(opened.flaw);
  else if (settings.only_signed && opened.row->is_signed != Signed::by_trusted)
    ignored("has no signature of a trusted key, which the policy 'signed' asks for");
  else if (settings.is_usable && !settings.is_usable(opened.row->record))
    ignored("holds no config that the op has and that is legal for its bucket");
  else
    return std::move(opened.row);
  return std::nullopt;
}

std::optional<Rows> ClientState::look_up(const RemotePlace& place) {
  const auto begun = Clock::now();
  const auto value = attempt(Does::read, [&](auto deadline) { return store->get(place, deadline); });
  if (!value) return std::nullopt;
  if (!*value) {
    ++misses;
    return std::nullopt;
  }
  bytes += static_cast<std::int64_t>((*value)->size());
  std::optional<SealedRow> row = accepted(open_row(place, **value, settings.keys));
  if (!row) return std::nullopt;
  ++hits;
  return with_code(std::move(*row), begun + 2 * operation_limit);
}

std::vector<Rows> ClientState::look_up_all(const std::string& space, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  std::vector<Rows> all;
  const auto values = attempt(
      Does::read, [&](auto deadline) { return store->list(space, deadline); }, limit);
  if (!values) return all;
  for (const std::string& value : *values) {
    bytes += static_cast<std::int64_t>(value.size());
    std::optional<SealedRow> row = accepted(open_listed(space, value, settings.keys));
    if (!row) continue;
    ++hits;
    all.push_back(with_code(std::move(*row), end));
  }
  return all;
}

Rows ClientState::with_code(SealedRow row, Clock::time_point end) {
  Rows rows{std::move(row.record), {}};
  if (row.is_signed == Signed::by_stranger && !row.code.empty())
    tell_once("stranger",
              fmt::format("machine code of the shared store, {}, is compiled here: no folder of trusted keys holds the "
                          "key that signed it",
                          store->name()));
  if (row.is_signed != Signed::by_trusted) return rows;
  for (const manifest::Digest& key : row.code) {
    if (Clock::now() >= end) break;
    if (settings.has_code && settings.has_code(key)) continue;
    const std::string name = manifest::to_hex(key);
    const auto value = attempt(Does::read, [&](auto deadline) { return store->get_code(name, deadline); });
    if (!value) break;
    if (!*value) continue;
    bytes += static_cast<std::int64_t>((*value)->size());
    Opened<store::CubinRow> opened = open_code(key, **value, settings.keys);
    if (opened.row)
      rows.code.push_back(std::move(*opened.row));
    else
      ignored(opened.flaw);
  }
  return rows;
}

Signed ClientState::own_signature() const {
  if (!settings.signer) return Signed::no;
  return settings.keys.trusted(settings.signer->public_key()) != nullptr ? Signed::by_trusted : Signed::by_stranger;
}

std::vector<manifest::Digest> ClientState::write_code(const std::vector<store::CubinRow>& code) {
  std::vector<manifest::Digest> keys;
  if (!settings.signer) return keys;
  for (const store::CubinRow& each : code) {
    const std::string value = seal(store::pack(each), *settings.signer);
    if (value.size() > store::most_remote_bytes) continue;
    const std::string key = manifest::to_hex(each.key);
    const auto present = attempt(Does::read, [&](auto deadline) { return store->get_code(key, deadline); });
    if (!present) break;
    if (*present && signer_of_code(each.key, **present, settings.keys) >= own_signature()) {
      keys.push_back(each.key);  // who trusts that signature may not trust ours
      continue;
    }
    const auto put = [&](auto deadline) { return store->put_code(key, value, deadline), true; };
    if (!attempt(Does::write, put)) break;
    bytes += static_cast<std::int64_t>(value.size());
    keys.push_back(each.key);
  }
  return keys;
}

std::optional<Clock::time_point> ClientState::write(const store::Record& record,
                                                    const std::vector<store::CubinRow>& code) {
  const auto later = [&]() -> std::optional<Clock::time_point> {
    const std::lock_guard lock(mutex);
    return std::max(reads.until, writes.until);
  };
  const store::PrivateKey* const signer = settings.signer ? &*settings.signer : nullptr;
  SealedRow own{record, write_code(code), own_signature()};
  const RemotePlace place = store::place_of(record);
  std::string value = seal(own.record, own.code, signer);
  if (value.size() > store::most_remote_bytes) {
    own.record.candidates.clear();
    value = seal(own.record, own.code, signer);
  }
  for (int tries = 0; tries < enough_writes && value.size() <= store::most_remote_bytes; ++tries) {
    const auto present = attempt(Does::read, [&](auto deadline) { return store->get(place, deadline); });
    if (!present) return later();
    if (*present) {
      const Opened<SealedRow> theirs = open_row(place, **present, settings.keys);
      const bool counts = theirs.row && (!settings.is_usable || settings.is_usable(theirs.row->record));
      if (counts && !comes_before(own, *theirs.row)) return std::nullopt;
    }
    const auto put = attempt(Does::write, [&](auto deadline) { return store->put(place, value, *present, deadline); });
    if (!put) return later();
    if (!*put) continue;
    bytes += static_cast<std::int64_t>(value.size());
    ++published;
    return std::nullopt;
  }
  ++errors;
  return std::nullopt;
}

std::vector<std::string> ClientState::find_spaces(std::chrono::milliseconds limit) {
  auto found = attempt(
      Does::read, [&](auto deadline) { return store->spaces(deadline); }, limit);
  return found ? std::move(*found) : std::vector<std::string>();
}

Client::Claimed ClientState::claim(const RemotePlace& place) {
  const auto is_ours =
      attempt(Does::write, [&](auto deadline) { return store->claim(place, token, claim_term, deadline); });
  if (!is_ours) return Client::Claimed::unknown;
  if (!*is_ours) return Client::Claimed::elsewhere;
  const std::lock_guard lock(mutex);
  claims.push_back({place, Clock::now()});
  return Client::Claimed::ours;
}

void ClientState::release(const RemotePlace& place) {
  {
    const std::lock_guard lock(mutex);
    if (std::erase_if(claims, [&](const Claim& each) { return each.place.key == place.key; }) == 0) return;
  }
  attempt(Does::write, [&](auto deadline) { return store->release(place, token, deadline), true; });
}

void ClientState::renew_claims(std::unique_lock<std::mutex>& lock) {
  const auto now = Clock::now();
  std::vector<RemotePlace> due;
  for (Claim& each : claims) {
    if (now - each.renewed < claim_term / 3) continue;
    each.renewed = now;
    due.push_back(each.place);
  }
  lock.unlock();
  for (const RemotePlace& place : due)
    attempt(Does::write, [&](auto deadline) { return store->renew(place, token, claim_term, deadline); });
  lock.lock();
}

}  // namespace kiln::remote
