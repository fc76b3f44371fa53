// Servers that are slow, broken or hostile: each operation ends by its deadline, in a failure or in nothing found.
#include "redis/support.hpp"

namespace kiln::testing {
namespace {

constexpr milliseconds deadline(60);

struct Behaviour {
  const char* name;
  std::function<void(int)> talk;
};

/// Answers each thing that comes with the same bytes.
std::function<void(int)> says(std::string bytes) {
  return [bytes = std::move(bytes)](int connection) {
    while (read_some(connection)) send_all(connection, bytes);
  };
}

/// Waits until the other end has had enough.
void wait_for_end(int connection) {
  while (read_some(connection)) {
  }
}

std::vector<Behaviour> behaviours() {
  return {
      {"says nothing", wait_for_end},
      {"closes at once", [](int) {}},
      {"closes when it was asked", [](int connection) { read_some(connection); }},
      {"drips an answer that never ends",
       [](int connection) {
         send_all(connection, "$4000000\r\n");
         while (send_all(connection, "x") == 1) std::this_thread::sleep_for(milliseconds(2));
       }},
      {"drips a line that never ends",
       [](int connection) {
         while (send_all(connection, "+") == 1) std::this_thread::sleep_for(milliseconds(2));
       }},
      {"floods",
       [](int connection) {
         const std::string much(1 << 16, '7');
         send_all(connection, ":");
         while (send_all(connection, much) == much.size()) {
         }
       }},
      {"announces a value of 2^62 bytes", says("$4611686018427387904\r\n")},
      {"announces a value of 4 GB", says("$4294967296\r\nx")},
      {"announces 2^31 values", says("*2147483647\r\n")},
      {"nests arrays", says("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n$1\r\nx\r\n")},
      {"speaks HTTP", says("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")},
      {"speaks TLS", says(std::string("\x15\x03\x03\x00\x02\x02\x46", 7))},
      {"answers in RESP3", says("%1\r\n+a\r\n+b\r\n")},
      {"answers with a wrong type", says("*2\r\n:1\r\n:2\r\n")},
      {"answers twice", says("$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n")},
      {"is loading", says("-LOADING Redis is loading the dataset in memory\r\n")},
      {"is of a cluster", says("-MOVED 3999 127.0.0.1:6381\r\n")},
      {"reads nothing", [](int) { std::this_thread::sleep_for(2 * deadline); }},
  };
}

TEST_CASE("an operation on a server that misbehaves ends by its deadline") {
  for (const Behaviour& behaviour : behaviours()) {
    const Scripted server(behaviour.talk);
    for (const Operation& operation : operations()) {
      CAPTURE(behaviour.name);
      CAPTURE(operation.name);
      const auto store = remote::open_redis(server.address());
      const auto began = Clock::now();
      try {
        operation.run(*store, began + deadline);
      } catch (const RemoteFailure& failure) {
        CHECK(std::string(failure.what()).find(server.socket()) == std::string::npos);
      }
      CHECK(Clock::now() - began < deadline + slack);
    }
  }
}

TEST_CASE("a large value that a server neither takes nor answers ends by its deadline") {
  for (const bool reads : {false, true}) {
    const Scripted server([&](int connection) {
      if (reads) wait_for_end(connection);
      std::this_thread::sleep_for(2 * deadline);
    });
    const auto store = remote::open_redis(server.address());
    const std::string large(store::most_remote_bytes, 'x');
    const auto began = Clock::now();
    CHECK(failure_of([&] { store->put_code("ab", large, began + deadline); }).kind == Kind::slow);
    CHECK(Clock::now() - began < deadline + slack);
  }
}

TEST_CASE("a server that hangs up in the middle of a command ends no process by SIGPIPE") {
  std::signal(SIGPIPE, SIG_DFL);
  const Scripted server([](int connection) { read_some(connection); });
  const auto store = remote::open_redis(server.address());
  const std::string large(store::most_remote_bytes, 'x');
  for (int times = 0; times < 20; ++times)
    CHECK(failure_of([&] { store->put_code("ab", large, within()); }).kind == Kind::unreachable);
}

TEST_CASE("no more of an answer is taken than a value may have") {
  std::atomic<std::size_t> sent = 0;
  const Scripted server([&](int connection) {
    const std::string much(1 << 16, 'x');
    send_all(connection, "*3\r\n$1\r\nx\r\n$4000000\r\n");
    for (std::size_t count = much.size(); count == much.size();) sent += count = send_all(connection, much);
  });
  for (const Operation& operation : operations()) {
    if (std::string_view(operation.name) == "list" || std::string_view(operation.name) == "spaces") continue;
    CAPTURE(operation.name);
    sent = 0;
    const auto store = remote::open_redis(server.address());
    try {
      operation.run(*store, within());
    } catch (const RemoteFailure&) {
    }
    CHECK(sent.load() < 2 * store::most_remote_bytes);
  }
}

TEST_CASE("a store that met a broken server finds a mended one") {
  std::atomic<bool> is_mended = false;
  const Scripted server([&](int connection) {
    while (read_some(connection)) send_all(connection, is_mended ? "$5\r\nvalue\r\n" : "$9999999\r\nx");
  });
  const auto store = remote::open_redis(server.address());
  CHECK_FALSE(store->get(place, within()).has_value());
  CHECK_FALSE(store->get(place, within()).has_value());
  is_mended = true;
  CHECK(store->get(place, within()) == "value");
}

TEST_CASE("a host that has no address, or none in time, ends by the deadline") {
  constexpr milliseconds patience(300);
  const auto began = Clock::now();
  for (const char* address : {"redis://no-such-host.invalid", "redis://192.0.2.1", "redis://127.0.0.1:1"}) {
    const auto store = remote::open_redis(address);
    const Told told = failure_of([&] { (void)store->get(place, within(patience)); });
    CHECK((told.kind == Kind::unreachable || told.kind == Kind::slow));
    CHECK(told.message.find("host.invalid") == std::string::npos);
    CHECK(told.message.find("192.0.2") == std::string::npos);
  }
  CHECK(Clock::now() - began < 3 * (patience + slack));
  const auto store = remote::open_redis("unix:///nonexistent/socket");
  CHECK(failure_of([&] { (void)store->get(place, within()); }).kind == Kind::unreachable);
}

}  // namespace
}  // namespace kiln::testing
