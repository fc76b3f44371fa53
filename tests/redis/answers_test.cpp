// What the client makes of a server's answers, without a server.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <string>

#include "remote/redis/errors.hpp"
#include "remote/redis/protocol.hpp"

namespace kiln::remote::redis {
namespace {

using Kind = store::RemoteFailure::Kind;

TEST_CASE("each error of a server is told by its kind, without the server's text") {
  const std::vector<std::pair<std::string, Kind>> cases{
      {"NOAUTH Authentication required.", Kind::refused},
      {"WRONGPASS invalid username-password pair or user is disabled.", Kind::refused},
      {"NOPERM User secret has no permissions to run the 'hget' command", Kind::refused},
      {"NOPERM this user has no permissions to access one of the keys used as arguments", Kind::refused},
      {"DENIED Redis is running in protected mode", Kind::refused},
      {"READONLY You can't write against a read only replica.", Kind::read_only},
      {"ERR Error running script (call to f_0): @user_script:1: -READONLY You can't write against a read only replica.",
       Kind::read_only},
      {"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
       Kind::read_only},
      {"OOM command not allowed when used memory > 'maxmemory'.", Kind::full},
      {"ERR Error running script (call to f_0): @user_script:1: -OOM command not allowed when used memory", Kind::full},
      {"LOADING Redis is loading the dataset in memory", Kind::unavailable},
      {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Kind::unavailable},
      {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", Kind::unavailable},
      {"MOVED 3999 secret.example:6381", Kind::unavailable},
      {"ASK 3999 secret.example:6381", Kind::unavailable},
      {"CROSSSLOT Keys in request don't hash to the same slot", Kind::unavailable},
      {"CLUSTERDOWN Hash slot not served", Kind::unavailable},
      {"WRONGTYPE Operation against a key holding the wrong kind of value", Kind::damaged},
      {"ERR max number of clients reached", Kind::unavailable},
      {"ERR AUTH <password> called without any password configured for the default user.", Kind::refused},
      {"ERR DB index is out of range", Kind::refused},
      {"ERR unknown command `EVAL`, with args beginning with: `secret`", Kind::refused},
      {"secret", Kind::refused},
      {"", Kind::refused},
  };
  for (const auto& each : cases) {
    CAPTURE(each.first);
    const store::RemoteFailure failure = failure_of(each.first);
    CHECK(to_string(failure.kind()) == to_string(each.second));
    CHECK(std::string(failure.what()).find("secret") == std::string::npos);
    CHECK(std::string(failure.what()).starts_with("the Redis server "));
  }
  CHECK(std::string(failure_of("SECRETWORDOFAHOST refused").what()) ==
        "the Redis server refused a command (no known error)");
}

TEST_CASE("a refusal of scripts is known from other refusals") {
  CHECK(refuses_scripts("NOPERM this user has no permissions to run the 'eval' command"));
  CHECK(refuses_scripts("ERR unknown command `EVAL`, with args beginning with: "));
  CHECK_FALSE(refuses_scripts("OOM command not allowed"));
  CHECK_FALSE(refuses_scripts("READONLY You can't write against a read only replica."));
}

std::optional<Reply> reply_to(std::string_view bytes, const ReplyLimits& limits = {1000, 10}) {
  ReplyReader reader;
  reader.set_limits(limits);
  reader.feed(bytes);
  return reader.next();
}

TEST_CASE("answers are read whole, however they are cut") {
  const std::string all = "*3\r\n$5\r\na\r\nb" + std::string(1, '\0') + "\r\n$-1\r\n:42\r\n+OK\r\n";
  ReplyReader reader;
  reader.set_limits({1000, 10});
  std::vector<Reply> replies;
  for (const char byte : all) {
    reader.feed({&byte, 1});
    if (auto reply = reader.next()) replies.push_back(std::move(*reply));
  }
  REQUIRE(replies.size() == 2);
  REQUIRE(replies.front().items.size() == 3);
  CHECK(replies.front().items[0].text == std::string("a\r\nb\0", 5));
  CHECK(replies.front().items[1].kind == Reply::Kind::nothing);
  CHECK(replies.front().items[2].number == 42);
  CHECK(replies.back().text == "OK");
  CHECK(reader.is_empty());
}

TEST_CASE("what announces more than is allowed is refused before it comes") {
  CHECK_THROWS_AS((void)reply_to("$1001\r\n"), ReplyTooLarge);
  CHECK_THROWS_AS((void)reply_to("$4611686018427387904\r\n"), ReplyTooLarge);
  CHECK_THROWS_AS((void)reply_to("*2\r\n$3\r\nabc\r\n$99999999999999999999"), ReplyTooLarge);
  CHECK_THROWS_AS((void)reply_to("*11\r\n"), ReplyTooLarge);
  CHECK_THROWS_AS((void)reply_to("*2147483647\r\n"), ReplyTooLarge);
  CHECK_THROWS_AS((void)reply_to("*1\r\n*1\r\n"), ReplyTooLarge);
  CHECK_THROWS_AS((void)reply_to(std::string(1001, '+')), ReplyTooLarge);
  CHECK_THROWS_AS((void)reply_to("*99999999999\r\n"), store::RemoteFailure);
  CHECK_FALSE(reply_to("$1000\r\n").has_value());
}

TEST_CASE("what is no answer is refused") {
  for (const char* bytes :
       {"HTTP/1.1 400 Bad Request\r\n", "\x15\x03\x01", "$x\r\n", "$-2\r\n", ":12z\r\n", "*-5\r\n"}) {
    CAPTURE(bytes);
    CHECK_THROWS_AS((void)reply_to(bytes), store::RemoteFailure);
  }
}

TEST_CASE("no bytes of a server break the reader") {
  const std::string alphabet = "$*:+-0123456789\r\nabc_#,(";
  rc::check("random answers are read, awaited or refused", [&] {
    const auto picks = *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, alphabet.size()));
    ReplyReader reader;
    reader.set_limits({4096, 16});
    try {
      for (const std::size_t pick : picks) {
        reader.feed({&alphabet[pick], 1});
        while (reader.next()) {
        }
      }
    } catch (const store::RemoteFailure&) {
    } catch (const ReplyTooLarge&) {
    }
  });
}

}  // namespace
}  // namespace kiln::remote::redis
