// Messages over a stream: their bounds, parts, and limits.
#include "team/stream.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "kiln/error.hpp"
#include "team/link.hpp"

using namespace kiln::team;
using std::chrono::milliseconds;

namespace {

Clock::time_point shortly() { return Clock::now() + milliseconds(50); }

struct StreamEnds {
  StreamEnds() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    here = Descriptor(ends[0]);
    there = Descriptor(ends[1]);
  }
  Descriptor here, there;
};

void send_raw(const Descriptor& socket, std::string_view bytes) {
  REQUIRE(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
}

std::string length_text(std::uint32_t length) { return {reinterpret_cast<const char*>(&length), sizeof length}; }

}  // namespace

TEST_CASE("messages keep their bounds over a stream, and one that comes byte by byte is late until it is whole") {
  StreamEnds both;
  const Link there(std::move(both.there), Link::Kind::stream);
  const std::string sent = length_text(3) + "one" + length_text(4) + "four";
  Message message;
  std::string got;
  for (const char each : sent) {
    CHECK(there.receive(message, Clock::now()) == Link::Outcome::late);
    send_raw(both.here, {&each, 1});
    if (got.empty() && there.receive(message, Clock::now()) == Link::Outcome::done) got = message.bytes;
  }
  CHECK(got == "one");
  REQUIRE(there.receive(message, shortly()) == Link::Outcome::done);
  CHECK(message.bytes == "four");
}

TEST_CASE("the longest message goes over a stream in many parts, and the sender keeps what has no room") {
  StreamEnds both;
  const int small = 4096;
  setsockopt(both.here.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  const Link here(std::move(both.here), Link::Kind::stream), there(std::move(both.there), Link::Kind::stream);
  const std::string longest(Link::longest_message, 'x');
  CHECK(here.send(longest, -1, Clock::now()) == Link::Outcome::late);
  CHECK(here.send("next", -1, Clock::now()) == Link::Outcome::late);  // behind the rest of the first
  Message message;
  int parts = 0;
  while (there.receive(message, Clock::now()) == Link::Outcome::late) {
    static_cast<void>(here.flush(Clock::now()));
    REQUIRE(++parts < 10'000);
  }
  CHECK(parts > 3);
  CHECK(message.bytes == longest);
  CHECK(here.flush(shortly()) == Link::Outcome::done);
  REQUIRE(there.receive(message, shortly()) == Link::Outcome::done);
  CHECK(message.bytes == "next");
}

TEST_CASE("what is no message of a stream closes it: an empty one, one past the limit, and another protocol") {
  for (const std::string& sent :
       {length_text(0), length_text(Link::longest_message + 1), std::string("GET / HTTP/1.1\r\n")}) {
    StreamEnds both;
    const Link there(std::move(both.there), Link::Kind::stream);
    send_raw(both.here, sent);
    Message message;
    CHECK(there.receive(message, shortly()) == Link::Outcome::closed);
  }
}

TEST_CASE("a stream that ends within a message is closed, and its other end still gets what was sent") {
  StreamEnds both;
  const Link there(std::move(both.there), Link::Kind::stream);
  send_raw(both.here, length_text(4) + "last" + length_text(8) + "cut");
  both.here = {};
  Message message;
  REQUIRE(there.receive(message, shortly()) == Link::Outcome::done);
  CHECK(message.bytes == "last");
  CHECK(there.receive(message, shortly()) == Link::Outcome::closed);
  CHECK(there.send("anything", -1, shortly()) == Link::Outcome::closed);
}

TEST_CASE("a rank that leaves ends the stream for descriptors that others hold of it, and is heard") {
  StreamEnds both;
  const Descriptor held(dup(both.here.get()));  // as a forked child has it
  const Link here(std::move(both.here), Link::Kind::stream), there(std::move(both.there), Link::Kind::stream);
  REQUIRE(there.send("never read", -1, shortly()) == Link::Outcome::done);
  REQUIRE(here.send("why", -1, shortly()) == Link::Outcome::done);
  here.leave();
  Message message;
  REQUIRE(there.receive(message, shortly()) == Link::Outcome::done);
  CHECK(message.bytes == "why");
  CHECK(there.receive(message, shortly()) == Link::Outcome::closed);
}

TEST_CASE("a file descriptor is not sent over a stream") {
  StreamEnds both;
  const Link here(std::move(both.here), Link::Kind::stream);
  CHECK_THROWS_WITH_AS(static_cast<void>(here.send("x", 0, shortly())),
                       "sending to a rank: a file descriptor cannot be sent to another host", kiln::Error);
}
