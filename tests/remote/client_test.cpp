#include <condition_variable>
#include <future>
#include <map>
#include <mutex>

#include "remote/client.hpp"
#include "store/integrity.hpp"
#include "support.hpp"

namespace kiln::remote {
namespace {

using store::RemoteFailure;
using store::RemotePlace;

/// A store in memory, seen by several clients, that fails or hangs when it is told to.
struct Server {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values, code, claims;
  std::optional<RemoteFailure::Kind> fails;
  bool hangs = false;
  int asked = 0, inside = 0;

  void enter() {
    std::unique_lock lock(mutex);
    ++asked;
    ++inside;
    changed.wait(lock, [this] { return !hangs; });
    --inside;
    changed.notify_all();
    if (fails) throw RemoteFailure(*fails, "the server says no");
  }
  void heal() {
    const std::lock_guard lock(mutex);
    hangs = false;
    fails.reset();
    changed.notify_all();
  }
};

class Connection final : public store::RemoteStore {
 public:
  explicit Connection(std::shared_ptr<Server> server) : server_(std::move(server)) {}
  [[nodiscard]] std::string name() const override { return "the server"; }
  std::optional<std::string> get(const RemotePlace& place, Deadline) override {
    return find(server_->values, place.key);
  }
  bool put(const RemotePlace& place, std::string_view value, const std::optional<std::string>& replaces,
           Deadline) override {
    server_->enter();
    const std::lock_guard lock(server_->mutex);
    const auto present = server_->values.find(place.key);
    if (present == server_->values.end() ? replaces.has_value() : replaces != present->second) return false;
    server_->values[place.key] = value;
    return true;
  }
  std::vector<std::string> list(std::string_view, Deadline) override {
    server_->enter();
    const std::lock_guard lock(server_->mutex);
    std::vector<std::string> all;
    for (const auto& [key, value] : server_->values) all.push_back(value);
    return all;
  }
  std::vector<std::string> spaces(Deadline) override { return {}; }
  std::optional<std::string> get_code(std::string_view key, Deadline) override {
    return find(server_->code, std::string(key));
  }
  void put_code(std::string_view key, std::string_view value, Deadline) override {
    server_->enter();
    const std::lock_guard lock(server_->mutex);
    server_->code[std::string(key)] = value;
  }
  bool claim(const RemotePlace& place, std::string_view token, std::chrono::seconds, Deadline) override {
    server_->enter();
    const std::lock_guard lock(server_->mutex);
    return server_->claims.emplace(place.key, token).first->second == token;
  }
  bool renew(const RemotePlace&, std::string_view, std::chrono::seconds, Deadline) override { return true; }
  void release(const RemotePlace& place, std::string_view token, Deadline) override {
    server_->enter();
    const std::lock_guard lock(server_->mutex);
    if (const auto held = server_->claims.find(place.key); held != server_->claims.end() && held->second == token)
      server_->claims.erase(held);
  }

 private:
  std::optional<std::string> find(const std::map<std::string, std::string>& in, const std::string& key) {
    server_->enter();
    const std::lock_guard lock(server_->mutex);
    const auto found = in.find(key);
    return found == in.end() ? std::nullopt : std::optional(found->second);
  }
  std::shared_ptr<Server> server_;
};

struct Told {
  std::mutex mutex;
  std::vector<std::string> warnings;
  [[nodiscard]] std::size_t count() {
    const std::lock_guard lock(mutex);
    return warnings.size();
  }
};

struct Shared {
  std::shared_ptr<Server> server = std::make_shared<Server>();
  std::shared_ptr<Told> told = std::make_shared<Told>();
  [[nodiscard]] std::unique_ptr<Client> client(ClientSettings settings = {}) const {
    settings.warn = [told = told](const std::string& warning) {
      const std::lock_guard lock(told->mutex);
      told->warnings.push_back(warning);
    };
    return std::make_unique<Client>(std::make_unique<Connection>(server), std::move(settings));
  }
  void put(const std::string& value, const store::Record& of) const {
    const std::lock_guard lock(server->mutex);
    server->values[of.key] = value;
  }
};

bool is_done(Client& client) { return client.wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(20)); }

TEST_CASE("what one client publishes another one fetches, machine code only where a trusted key signed it") {
  const Shared shared;
  const store::Folder at;
  const store::KeyFiles files = store::make_keys(at, "ours");
  const std::filesystem::path folder = at / "keys";
  std::vector<std::string> ignored;
  const store::KeyRing keys = store::KeyRing::read({&folder, 1}, ignored);
  const store::Record record = numbered_record(1);
  const store::CubinRow code = store::sample_cubin("one");
  bool is_signed = false;
  SUBCASE("with a key") { is_signed = true; }
  SUBCASE("without") {}
  ClientSettings settings{.keys = keys};
  if (is_signed) settings.signer = store::PrivateKey::read(files.secret);
  shared.client(std::move(settings))->publish(record, {code});
  CHECK(shared.server->values.size() == 1);
  CHECK(shared.server->code.size() == (is_signed ? 1 : 0));

  const auto trusting = shared.client({.keys = keys}), other = shared.client();
  const auto trusted = trusting->fetch(store::place_of(record)), untrusted = other->fetch(store::place_of(record));
  REQUIRE(trusted);
  CHECK(store::same(trusted->record, record));
  CHECK(trusted->code.size() == (is_signed ? 1 : 0));
  REQUIRE(untrusted);
  CHECK(untrusted->code.empty());
  CHECK(trusting->counters().hits == 1);
  CHECK(trusting->counters().bytes > 0);
  CHECK(shared.told->count() == (is_signed ? 1 : 0));  // the other one's compile
  CHECK(shared.client({.keys = keys, .only_signed = true})->fetch(store::place_of(record)).has_value() == is_signed);
  const auto provided =
      shared.client({.keys = keys, .has_code = [&](const manifest::Digest& key) { return key == code.key; }});
  CHECK(provided->fetch(store::place_of(record))->code.empty());
  CHECK(trusting->list(store::place_of(record).space, std::chrono::seconds(20)).size() == 1);
  CHECK(!trusting->fetch(store::place_of(numbered_record(2))));
  CHECK(trusting->counters().misses == 1);
  CHECK(trusting->counters().errors == 0);
}

TEST_CASE("machine code of a trusted key is not replaced by that of another, and what does not hold is") {
  const Shared shared;
  const store::Folder at, elsewhere;
  const store::KeyFiles ours = store::make_keys(at, "ours"), strange = store::make_keys(elsewhere, "strange");
  const std::filesystem::path folder = at / "keys";
  std::vector<std::string> ignored;
  const store::KeyRing keys = store::KeyRing::read({&folder, 1}, ignored);
  const store::Record record = numbered_record(1);
  const store::CubinRow code = store::sample_cubin("one");
  const auto push = [&](const store::KeyFiles& with, const store::KeyRing& trusted) {
    ClientSettings settings{.keys = trusted};
    settings.signer = store::PrivateKey::read(with.secret);
    shared.client(std::move(settings))->publish(record, {code});
    return shared.server->code.at(manifest::to_hex(code.key));
  };
  const std::string by_stranger = push(strange, {});
  CHECK(push(ours, {}) == by_stranger);  // neither is trusted there
  const std::string by_us = push(ours, keys);
  CHECK(by_us != by_stranger);
  CHECK(push(strange, keys) == by_us);
  CHECK(push(strange, {}) == by_us);
  CHECK(shared.client({.keys = keys})->fetch(store::place_of(record))->code.size() == 1);
  shared.server->code[manifest::to_hex(code.key)] = by_us.substr(0, by_us.size() - 1);
  CHECK(push(strange, keys) == by_stranger);
}

TEST_CASE("a worse record does not replace a better one, and one that does not hold is replaced") {
  const Shared shared;
  const auto samples = [&] {
    const auto rows = shared.client()->fetch(store::place_of(numbered_record(1)));
    return rows ? rows->record.choices[0].samples : -1;
  };
  for (const std::int64_t each : {20, 10, 30}) shared.client()->publish(numbered_record(1, each), {});
  CHECK(samples() == 30);
  shared.put("nonsense", numbered_record(1));
  shared.client()->publish(numbered_record(1, 5), {});
  CHECK(samples() == 5);
  shared.put(value_of(numbered_record(1, 1000)), numbered_record(1));
  const auto is_usable = [](const store::Record& record) { return record.choices[0].samples < 1000; };
  CHECK(!shared.client({.is_usable = is_usable})->fetch(store::place_of(numbered_record(1))));
  shared.client({.is_usable = is_usable})->publish(numbered_record(1, 5), {});
  CHECK(samples() == 5);
}

TEST_CASE("a value that does not hold is a miss, counted and told once a kind") {
  const Shared shared;
  shared.put("nonsense", numbered_record(1));
  shared.put(value_of(numbered_record(1)), numbered_record(2));
  const auto client = shared.client();
  for (int i = 0; i < 3; ++i)
    for (const int number : {1, 2}) CHECK(!client->fetch(store::place_of(numbered_record(number))));
  CHECK(client->counters().errors == 6);
  CHECK(client->counters().hits == 0);
  CHECK(shared.told->count() == 2);
}

TEST_CASE("a store that fails is told once and left alone, and nothing waits for it") {
  const Shared shared;
  const auto client = shared.client();
  for (const auto kind : {RemoteFailure::Kind::unreachable, RemoteFailure::Kind::unavailable}) {
    shared.server->fails = kind;
    for (int i = 0; i < 100; ++i) CHECK(!client->fetch(store::place_of(numbered_record(i))));
    CHECK(client->claim(store::place_of(numbered_record(1))) == Client::Claimed::unknown);
    CHECK(shared.server->asked == 1);
    CHECK(client->counters().errors == 1);
    CHECK(shared.told->count() == 1);
  }
}

TEST_CASE("a store that takes no writes is read from all the same") {
  const Shared shared;
  shared.put(value_of(numbered_record(2)), numbered_record(2));
  const auto client = shared.client();
  shared.server->fails = RemoteFailure::Kind::read_only;
  CHECK(client->claim(store::place_of(numbered_record(1))) == Client::Claimed::unknown);
  shared.server->heal();
  CHECK(client->claim(store::place_of(numbered_record(1))) == Client::Claimed::unknown);
  CHECK(client->fetch(store::place_of(numbered_record(2))));
  CHECK(shared.told->count() == 1);
}

TEST_CASE("a store that hangs keeps a launch no longer than the limit, and neither later ones nor the end") {
  const Shared shared;
  shared.server->hangs = true;
  {
    const auto client = shared.client();
    for (int i = 0; i < 100; ++i) CHECK(!client->fetch(store::place_of(numbered_record(1))));
    CHECK(shared.server->asked == 1);
    client->publish(numbered_record(1), {});
  }
  CHECK(shared.server->asked == 1);
  shared.server->heal();
  std::unique_lock lock(shared.server->mutex);
  shared.server->changed.wait(lock, [&] { return shared.server->inside == 0; });
}

TEST_CASE("one of two clients has a claim until it releases it") {
  const Shared shared;
  const auto one = shared.client(), other = shared.client();
  const RemotePlace place = store::place_of(numbered_record(1));
  CHECK(one->claim(place) == Client::Claimed::ours);
  CHECK(other->claim(place) == Client::Claimed::elsewhere);
  one->release(place);
  REQUIRE(is_done(*one));
  CHECK(other->claim(place) == Client::Claimed::ours);
}

TEST_CASE("rows that are there later are handed over on the client's thread") {
  const Shared shared;
  shared.put(value_of(numbered_record(1)), numbered_record(1));
  const auto client = shared.client();
  std::promise<bool> handed;
  client->fetch_when_there(store::place_of(numbered_record(1)),
                           [&](const Rows& rows) { handed.set_value(rows.record.key == numbered_record(1).key); });
  CHECK(handed.get_future().get());
  client->fetch_when_there(store::place_of(numbered_record(2)), [&](const Rows&) { FAIL_CHECK("there is none"); });
  CHECK(is_done(*client));
}

TEST_CASE("work for later is done on the client's thread after its pause, and not once the client ends") {
  using Clock = std::chrono::steady_clock;
  const Shared shared;
  const auto client = shared.client();
  std::promise<Clock::time_point> done;
  const auto begun = Clock::now();
  REQUIRE(client->call_after(std::chrono::milliseconds(30), [&] {
    CHECK(client->is_this_thread());
    done.set_value(Clock::now());
  }));
  CHECK(done.get_future().get() - begun >= std::chrono::milliseconds(30));
  CHECK(shared.client()->call_after(std::chrono::hours(1), [] { FAIL_CHECK("its client has ended"); }));
}

TEST_CASE("a client that ends on its own thread ends") {
  const Shared shared;
  shared.put(value_of(numbered_record(1)), numbered_record(1));
  std::unique_ptr<Client> client = shared.client();
  std::promise<void> ended;
  Client& there = *client;
  there.fetch_when_there(store::place_of(numbered_record(1)), [&](const Rows&) {
    CHECK(there.is_this_thread());
    there.call_at_end([&] {
      client.reset();
      ended.set_value();
    });
  });
  ended.get_future().get();
  CHECK(client == nullptr);
}

}  // namespace
}  // namespace kiln::remote
