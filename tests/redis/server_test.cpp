// The store on a real server: its operations, and what servers go through.
#include <mutex>

#include "redis/support.hpp"

namespace kiln::testing {
namespace {

/// The rights of docs/sharing.md's tuner, without those for scripts.
const std::vector<std::string> without_scripts{"--user", "default", "reset",         "on",          "nopass", "~kiln:*",
                                               "+@read", "+@write", "+@transaction", "+@connection"};

TEST_SUITE_BEGIN("server");

TEST_CASE("a value is found as it was put, by each way to the server") {
  const int port = free_port();
  const Server server({"--port", std::to_string(port), "--bind", "127.0.0.1"});
  const std::string bytes("\0\r\n$5 \xff", 7);
  int number = 0;
  for (const std::string& address :
       {server.address(), "redis://127.0.0.1:" + std::to_string(port), "redis://localhost:" + std::to_string(port)}) {
    CAPTURE(address);
    const auto store = remote::open_redis(address);
    const store::RemotePlace at{place.space, "bucket " + std::to_string(++number)};
    CHECK_FALSE(store->get(at, within()).has_value());
    CHECK(store->put(at, bytes, std::nullopt, within()));
    CHECK(store->get(at, within()) == bytes);
    CHECK(store->list(place.space, within()).size() == static_cast<std::size_t>(number));
    CHECK(store->spaces(within()) == std::vector{place.space});
    CHECK(store->name() == "the Redis server");
  }
}

TEST_CASE("a put replaces what its writer read and nothing else, with scripts and without") {
  for (const auto& settings : {std::vector<std::string>(), without_scripts}) {
    const Server server(settings);
    const auto store = remote::open_redis(server.address());
    CHECK(store->put(place, "first", std::nullopt, within()));
    CHECK_FALSE(store->put(place, "second", std::nullopt, within()));
    CHECK_FALSE(store->put(place, "second", "another", within()));
    CHECK(store->get(place, within()) == "first");
    CHECK(store->put(place, "second", "first", within()));
    CHECK(store->put(place, "second", "first", within()));  // as after an answer that was lost
    CHECK(store->get(place, within()) == "second");
    const store::RemotePlace elsewhere{place.space, "elsewhere"};
    CHECK_FALSE(store->put(elsewhere, "third", "first", within()));
    CHECK_FALSE(store->get(elsewhere, within()).has_value());
  }
}

TEST_CASE("of writers at one place none undoes another's write, with scripts and without") {
  constexpr int writers = 4, writes = 25;
  for (const auto& settings : {std::vector<std::string>(), without_scripts}) {
    const Server server(settings);
    const auto count = [&] {
      const auto store = remote::open_redis(server.address());
      for (int done = 0; done < writes;) {
        const auto before = store->get(place, within());
        const int next = before ? std::stoi(*before) + 1 : 1;
        // Each value is its writer's alone, so that no other writer's is taken for it.
        done += store->put(place, std::to_string(next) + " " + std::to_string(gettid()), before, within()) ? 1 : 0;
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int each = 0; each < writers; ++each) threads.emplace_back(count);
    }
    const auto value = remote::open_redis(server.address())->get(place, within());
    REQUIRE(value.has_value());
    CHECK(std::stoi(*value) == writers * writes);
  }
}

TEST_CASE("spaces and machine code are apart, and a whole space is listed") {
  const Server server;
  const auto store = remote::open_redis(server.address());
  CHECK(store->list("none", within()).empty());
  CHECK(store->spaces(within()).empty());
  for (int at = 0; at < 300; ++at)
    CHECK(
        store->put({"many", std::to_string(at)}, std::string(1000, 'v') + std::to_string(at), std::nullopt, within()));
  CHECK(store->put({"other", "0"}, "other", std::nullopt, within()));
  CHECK(store->list("many", within()).size() == 300);
  CHECK(store->list("other", within()) == std::vector<std::string>{"other"});
  CHECK(store->spaces(within()).size() == 2);
  CHECK_FALSE(store->get_code("ab", within()).has_value());
  store->put_code("ab", "first", within());
  store->put_code("ab", "second", within());
  CHECK(store->get_code("ab", within()) == "second");
}

TEST_CASE("values up to 4 MiB are kept, larger ones are neither written nor read, and can be replaced") {
  const Server server;
  const auto store = remote::open_redis(server.address());
  const std::string largest(store::most_remote_bytes, 'x'), larger = largest + "x";
  CHECK(store->put(place, largest, std::nullopt, within()));
  CHECK(store->get(place, within()) == largest);
  store->put_code("ab", largest, within());
  CHECK(store->get_code("ab", within()) == largest);
  CHECK(failure_of([&] { store->put_code("ab", larger, within()); }).kind == Kind::refused);
  CHECK(failure_of([&] { store->put(place, larger, largest, within()); }).kind == Kind::refused);

  ask(server.socket(), {"HSET", "kiln:records:" + place.space, place.key, larger});
  ask(server.socket(), {"SET", "kiln:code:ab", larger});
  CHECK_FALSE(store->get(place, within()).has_value());
  CHECK_FALSE(store->get_code("ab", within()).has_value());
  CHECK(store->put(place, "small", std::nullopt, within()));
  CHECK(store->get(place, within()) == "small");
}

TEST_CASE("a claim is one holder's until it is released or its term ends, with scripts and without") {
  for (const auto& settings : {std::vector<std::string>(), without_scripts}) {
    const Server server(settings);
    const auto one = remote::open_redis(server.address()), other = remote::open_redis(server.address());
    CHECK(one->claim(place, "one", term, within()));
    CHECK(one->claim(place, "one", term, within()));  // as after an answer that was lost
    CHECK_FALSE(other->claim(place, "other", term, within()));
    CHECK(other->claim({place.space, "elsewhere"}, "other", term, within()));
    CHECK_FALSE(other->renew(place, "other", term, within()));
    other->release(place, "other", within());
    CHECK_FALSE(other->claim(place, "other", term, within()));
    one->release(place, "one", within());
    CHECK_FALSE(one->renew(place, "one", term, within()));
    CHECK(other->claim(place, "other", std::chrono::seconds(1), within()));
    CHECK(other->renew(place, "other", term, within()));
    CHECK(ask(server.socket(), {"PTTL", "kiln:claim:" + place.space + "|" + place.key}).number > 1000);
    CHECK(other->renew(place, "other", std::chrono::seconds(1), within()));
    const auto began = Clock::now();
    while (!one->claim(place, "one", term, within()) && Clock::now() < began + std::chrono::seconds(20))
      std::this_thread::sleep_for(milliseconds(20));
    CHECK(Clock::now() - began < std::chrono::seconds(20));
    CHECK_FALSE(other->renew(place, "other", term, within()));
  }
}

TEST_CASE("a server that wants a password refuses who has none, and the message has no secret") {
  const Server server({"--requirepass", "hunter2"});
  const auto told_by = [&](const std::string& login) {
    const auto store = remote::open_redis("unix://" + login + server.socket());
    const Told told = failure_of([&] { (void)store->get(place, within()); });
    CHECK(told.message.find("hunter2") == std::string::npos);
    CHECK(told.message.find("somebody") == std::string::npos);
    CHECK(to_string(told.kind) == "refused");
    return told.message;
  };
  CHECK(told_by("").find("(NOAUTH)") != std::string::npos);
  CHECK(told_by(":hunter22@").find("(WRONGPASS)") != std::string::npos);
  CHECK(told_by("somebody:hunter2@").find("(WRONGPASS)") != std::string::npos);
  CHECK(remote::open_redis("unix://:hunter2@" + server.socket())->put(place, "value", std::nullopt, within()));
  setenv("KILN_REDIS_PASSWORD", "hunter2", 1);
  const auto store = remote::open_redis(server.address());
  unsetenv("KILN_REDIS_PASSWORD");
  CHECK(store->get(place, within()) == "value");
  const Server open;
  const auto with_password = remote::open_redis("unix://:hunter2@" + open.socket());
  CHECK(failure_of([&] { (void)with_password->get(place, within()); }).kind == Kind::refused);
}

TEST_CASE("the users of docs/sharing.md may tune, and may read") {
  const Server server({"--user", "kiln-tuner", "on", ">pw", "~kiln:*", "+@read", "+@write", "+@scripting",
                       "+@transaction", "+@connection", "+select", "--user", "kiln-reader", "on", ">pw",
                       server_version() < 7 ? "~kiln:*" : "%R~kiln:*", "+@read", "+@connection", "+select"});
  const auto tuner = remote::open_redis("unix://kiln-tuner:pw@" + server.socket() + "?db=1");
  for (const Operation& operation : operations()) {
    CAPTURE(operation.name);
    CHECK_NOTHROW(operation.run(*tuner, within()));
  }
  const auto reader = remote::open_redis("unix://kiln-reader:pw@" + server.socket() + "?db=1");
  CHECK(reader->get(place, within()) == "value");
  CHECK(reader->list(place.space, within()).size() == 1);
  CHECK(reader->spaces(within()).size() == 1);
  CHECK(reader->get_code("ab", within()) == "code");
  CHECK(failure_of([&] { reader->put(place, "other", "value", within()); }).kind == Kind::refused);
  CHECK(failure_of([&] { reader->put_code("ab", "other", within()); }).kind == Kind::refused);
  CHECK(failure_of([&] { reader->claim(place, "token", term, within()); }).kind == Kind::refused);
  CHECK(reader->get(place, within()) == "value");
}

TEST_CASE("the database of the address is used, and one that is not there is told") {
  const Server server;
  const auto store = remote::open_redis(server.address() + "?db=3");
  CHECK(store->put(place, "value", std::nullopt, within()));
  CHECK_FALSE(remote::open_redis(server.address())->get(place, within()).has_value());
  CHECK(store->get(place, within()) == "value");
  const auto wrong = remote::open_redis(server.address() + "?db=999");
  CHECK(failure_of([&] { (void)wrong->get(place, within()); }).kind == Kind::refused);
}

TEST_CASE("a server with too many clients is told, and serves when one has left") {
  const Server server({"--maxclients", "1"});
  auto first = remote::open_redis(server.address());
  CHECK(first->put(place, "value", std::nullopt, within()));
  const auto second = remote::open_redis(server.address());
  for (const Operation& operation : operations())
    CHECK(failure_of([&] { operation.run(*second, within()); }).kind == Kind::unavailable);
  first.reset();
  std::optional<std::string> found;
  for (const auto end = within(); !found && Clock::now() < end;) {
    try {
      found = second->get(place, within());
    } catch (const RemoteFailure&) {  // it has not seen yet that one has left
    }
  }
  CHECK(found == "value");
}

TEST_CASE("a full server is told, is read on, and is written again when it has room") {
  const Server server({"--maxmemory-policy", "noeviction"});
  const auto store = remote::open_redis(server.address());
  CHECK(store->put(place, "value", std::nullopt, within()));
  ask(server.socket(), {"CONFIG", "SET", "maxmemory", "1"});
  CHECK(failure_of([&] { store->put(place, "other", "value", within()); }).kind == Kind::full);
  CHECK(failure_of([&] { store->put_code("ab", "code", within()); }).kind == Kind::full);
  CHECK(failure_of([&] { store->claim(place, "token", term, within()); }).kind == Kind::full);
  CHECK(store->get(place, within()) == "value");
  ask(server.socket(), {"CONFIG", "SET", "maxmemory", "0"});
  CHECK(store->put(place, "other", "value", within()));
}

TEST_CASE("a replica is read, and cannot be written") {
  const int port = free_port();
  const Server primary({"--port", std::to_string(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"});
  CHECK(remote::open_redis(primary.address())->put(place, "value", std::nullopt, within()));
  const Server replica({"--replicaof", "127.0.0.1", std::to_string(port)});
  const auto store = remote::open_redis(replica.address());
  std::optional<std::string> found;
  for (const auto end = within(); !found && Clock::now() < end; std::this_thread::sleep_for(milliseconds(10))) {
    try {
      found = store->get(place, within());
    } catch (const RemoteFailure& failure) {
      CHECK(to_string(failure.kind()) == "unavailable");  // it loads
    }
  }
  CHECK(found == "value");
  CHECK(failure_of([&] { store->put(place, "other", "value", within()); }).kind == Kind::read_only);
  CHECK(failure_of([&] { store->claim(place, "token", term, within()); }).kind == Kind::read_only);
  CHECK(store->get(place, within()) == "value");
}

TEST_CASE("a stopped server ends operations by their deadline, and serves when it goes on") {
  const Server server;
  const auto store = remote::open_redis(server.address());
  CHECK(store->put(place, "value", std::nullopt, within()));
  server.signal(SIGSTOP);
  for (const Operation& operation : operations()) {
    CAPTURE(operation.name);
    const auto began = Clock::now();
    CHECK(failure_of([&] { operation.run(*store, began + milliseconds(50)); }).kind == Kind::slow);
    CHECK(Clock::now() - began < milliseconds(1050));
  }
  server.signal(SIGCONT);
  CHECK(store->get(place, within()) == "value");
}

TEST_CASE("a killed server is told, and one that begins again empty is used") {
  Server server;
  const auto store = remote::open_redis(server.address());
  CHECK(store->put(place, "value", std::nullopt, within()));
  server.stop();
  for (const Operation& operation : operations()) {
    CAPTURE(operation.name);
    CHECK(failure_of([&] { operation.run(*store, within()); }).kind == Kind::unreachable);
  }
  server.start();
  CHECK_FALSE(store->get(place, within()).has_value());
  CHECK(store->put(place, "anew", std::nullopt, within()));
  CHECK(store->get(place, within()) == "anew");
}

TEST_CASE("a connection that the server closed while it was idle costs no operation") {
  const Server server;
  const auto store = remote::open_redis(server.address());
  for (const Operation& operation : operations()) {
    CAPTURE(operation.name);
    (void)store->get(place, within());
    ask(server.socket(), {"CLIENT", "KILL", "TYPE", "normal"});
    CHECK_NOTHROW(operation.run(*store, within()));
  }
}

TEST_CASE("a server that a script keeps busy is told") {
  const Server server({"--lua-time-limit", "1"});  // as Redis 6 calls it, too
  const auto store = remote::open_redis(server.address());
  std::jthread busy([&] {
    try {
      ask(server.socket(), {"EVAL", "while true do end", "0"});
    } catch (const RemoteFailure&) {
    }
  });
  Kind kind = Kind::slow;
  for (const auto end = within(); kind != Kind::unavailable && Clock::now() < end;) {
    try {
      (void)store->get(place, within());
    } catch (const RemoteFailure& failure) {
      kind = failure.kind();
    }
  }
  CHECK(kind == Kind::unavailable);
  ask(server.socket(), {"SCRIPT", "KILL"});
}

TEST_CASE("a key of another type is told, and a child of fork has a connection of its own") {
  const Server server;
  const auto store = remote::open_redis(server.address());
  ask(server.socket(), {"SET", "kiln:records:wrong", "text"});
  CHECK(failure_of([&] { (void)store->list("wrong", within()); }).kind == Kind::damaged);
  CHECK(store->put(place, "value", std::nullopt, within()));
  const pid_t child = fork();
  if (child == 0) {
    bool is_right = true;
    for (int times = 0; times < 200; ++times) is_right = is_right && store->get(place, within()) == "value";
    _exit(is_right ? 0 : 1);
  }
  for (int times = 0; times < 200; ++times) CHECK_FALSE(store->get({"other", "other"}, within()).has_value());
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_SUITE_END();

}  // namespace
}  // namespace kiln::testing
