// How ranks of several hosts meet, shown over the loopback interface: who is let in, who is refused, and who is missed.
#include "team/meeting.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>

#include "kiln/error.hpp"
#include "manifest/key.hpp"
#include "team/network.hpp"

using namespace kiln;
using namespace kiln::team;
using namespace kiln::test;
using std::chrono::milliseconds;

namespace {

/// Meets, and returns what each other rank says over its link, by rank: who it is, to whom.
std::string met_over(const std::string& address, const Membership& own, milliseconds limit = ample) {
  const Meeting meeting = meet_at(address, own, Clock::now() + limit);
  const auto end = Clock::now() + ample;
  std::string heard;
  for (int rank = 0; rank < own.world; ++rank)
    if (const auto& peer = meeting.peers[static_cast<std::size_t>(rank)])
      if (peer->link.send(fmt::format("{}>{}", own.rank, rank), -1, end) != Link::Outcome::done) return "cannot send";
  for (const auto& peer : meeting.peers) {
    Message message;
    if (peer && peer->link.receive(message, end) != Link::Outcome::done) return "cannot receive";
    heard += (peer ? message.bytes : "own") + " ";
  }
  return heard;
}

std::string expected_of(int rank, int world) {
  std::string heard;
  for (int other = 0; other < world; ++other) heard += other == rank ? "own " : fmt::format("{}>{} ", other, rank);
  return heard;
}

/// What a rank says first, as a message of a stream.
struct RawGreeting {
  std::uint32_t length = 60;
  manifest::Digest team{};
  std::int32_t rank = 0, world = 0;
  std::array<std::uint8_t, 16> session{};
  std::uint32_t port = 1;
};

bool is_closed_unanswered(const Descriptor& socket) {
  const timeval limit{10, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const int flags = fcntl(socket.get(), F_GETFL);
  fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK);
  char answer = 0;
  const ssize_t count = recv(socket.get(), &answer, 1, 0);
  return count == 0 || (count < 0 && errno == ECONNRESET);
}

std::string refusal(const std::string& address) {
  try {
    parse_address(address);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bad_input);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("an address is a host and a port, and what is none says what to give") {
  const HostAndPort name = parse_address("node-1:29600"), ipv6 = parse_address("[fd00::1]:65535");
  CHECK(name.host == "node-1");
  CHECK(name.port == 29600);
  CHECK(ipv6.host == "fd00::1");
  CHECK(to_string(*numeric(ipv6)) == "[fd00::1]:65535");
  CHECK(to_string(*numeric(parse_address("10.0.0.7:1"))) == "10.0.0.7:1");
  CHECK_FALSE(numeric(name));
  for (const char* each : {"node", "node:", "node:0", "node:65536", "node:80x", ":80", "fd00::1:80", "node:-1"}) {
    CHECK_MESSAGE(holds(refusal(each), fmt::format("a team's address is '{}'", each)), each);
    CHECK(holds(refusal(each), "give HOST:PORT"));
  }
}

TEST_CASE("every rank is linked to every other over streams, in whatever order they come, by number and by name") {
  for (const int world : {1, 2, 5})
    for (const char* host : {"127.0.0.1", "localhost", "[::1]"}) {
      CAPTURE(host);
      if (host == std::string("[::1]") && !listen_at(*numeric({"::1", free_port()}))) continue;  // no IPv6 here
      if (const Resolved found = resolve({host == std::string("[::1]") ? "::1" : host, 1}); found.endpoints.empty()) {
        MESSAGE("not tried: ", host, ", which this host does not know: ", found.why_none);
        continue;
      }
      const std::string address = fmt::format("{}:{}", host, free_port());
      Ranks ranks;
      for (int rank = world - 1; rank >= 0; --rank) {
        ranks.begin([&, rank] {
          std::this_thread::sleep_for(milliseconds(rank * 17 % 40));
          return met_over(address, {rank, world, ranks.name});
        });
      }
      for (int rank = 0; rank < world; ++rank)
        CHECK(ranks.outcome(static_cast<std::size_t>(world - 1 - rank)) == expected_of(rank, world));
    }
}

TEST_CASE("a rank that comes late is waited for, and teams meet at one address one after another") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(3, [&](const Membership& own) {
    std::string heard;
    for (const char* name : {"first", "second", "third"}) {
      if (own.rank == 2) std::this_thread::sleep_for(milliseconds(150));
      heard += met_over(address, {own.rank, 3, own.name + name});
    }
    return heard;
  });
  for (int rank = 0; rank < 3; ++rank) {
    const std::string once = expected_of(rank, 3);
    CHECK(ranks.outcome(static_cast<std::size_t>(rank)) == once + once + once);
  }
}

TEST_CASE("ranks that do not come in time are named by rank 0 and by those that wait for it") {
  for (const int absent : {0, 2}) {
    const std::string address = free_address();
    Ranks ranks;
    for (int rank = 0; rank < 4; ++rank)
      if (rank != absent)
        ranks.begin([&, rank] {
          if (rank > 0) std::this_thread::sleep_for(milliseconds(200));  // rank 0's wait ends first
          return met_over(address, {rank, 4, ranks.name}, milliseconds(1'500));
        });
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string said = ranks.outcome(i);
      if (absent == 0)
        CHECK_MESSAGE(holds(said, fmt::format("rank 0 was not met at {} in time", address)), said);
      else
        CHECK_MESSAGE(holds(said, "rank 0 of 4: rank 2 did not come in time"), said);
    }
  }
}

TEST_CASE("ranks of unlike worlds are told so, and the others of their team end at once") {
  const std::string address = free_address();
  Ranks ranks;
  const auto begun = Clock::now();
  ranks.begin([&] { return met_over(address, {0, 3, ranks.name}); });
  ranks.begin([&] { return met_over(address, {1, 3, ranks.name}); });
  std::this_thread::sleep_for(milliseconds(300));
  ranks.begin([&] { return met_over(address, {2, 4, ranks.name}); });
  for (const std::size_t rank : {0U, 1U}) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(holds(said, "rank 0 of 3: rank 2 was given a world of 4 ranks"), said);
  }
  const std::string said = ranks.outcome(2);
  CHECK_MESSAGE(holds(said, "rank 2 of 4: rank 0 was given a world of 3 ranks"), said);
  CHECK(Clock::now() - begun < milliseconds(5'000));
}

TEST_CASE("a second process that claims a rank is refused, rank 0's at once by its port, and the others meet") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin([&] { return met_over(address, {0, 3, ranks.name}); });
  ranks.begin([&] { return met_over(address, {1, 3, ranks.name}); });
  REQUIRE(knock_at(address));
  std::this_thread::sleep_for(milliseconds(300));
  const auto begun = Clock::now();
  ranks.begin([&] { return met_over(address, {0, 3, ranks.name}); });
  ranks.begin([&] { return met_over(address, {1, 3, ranks.name}); });
  std::string said = ranks.outcome(2);
  CHECK_MESSAGE(holds(said, address + " is in use: another process has claimed rank 0"), said);
  said = ranks.outcome(3);
  CHECK_MESSAGE(holds(said, "rank 1 of 3: another process has claimed this rank already"), said);
  CHECK(Clock::now() - begun < milliseconds(5'000));
  ranks.begin([&] { return met_over(address, {2, 3, ranks.name}); });
  CHECK(ranks.outcome(0) == expected_of(0, 3));
  CHECK(ranks.outcome(1) == expected_of(1, 3));
  CHECK(ranks.outcome(4) == expected_of(2, 3));
}

TEST_CASE("a rank that ended before the others had come is replaced by its successor") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin([&] { return met_over(address, {0, 3, ranks.name}); });
  ranks.begin([&] { return met_over(address, {1, 3, ranks.name}); });
  REQUIRE(knock_at(address));
  std::this_thread::sleep_for(milliseconds(300));
  ranks.kill(1);
  for (int rank = 1; rank < 3; ++rank) ranks.begin([&, rank] { return met_over(address, {rank, 3, ranks.name}); });
  CHECK(ranks.outcome(0) == expected_of(0, 3));
  CHECK(ranks.outcome(2) == expected_of(1, 3));
  CHECK(ranks.outcome(3) == expected_of(2, 3));
}

TEST_CASE("a greeting of another meeting of the team is not taken for one of this meeting's ranks") {
  const std::string address = free_address();
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.begin([&, rank] { return met_over(address, {rank, 3, ranks.name}); });
  // This process is rank 2, which greets the two others.
  RawGreeting greeting;
  greeting.team = manifest::Hasher().field("kiln-team-network").field(std::int64_t{1}).field(ranks.name).finish();
  greeting.rank = 2;
  greeting.world = 3;
  const auto end = Clock::now() + ample;
  const auto greet = [&](const Link& link) {
    const std::string_view bytes = {reinterpret_cast<const char*>(&greeting.team), greeting.length};
    CHECK(link.send(bytes, -1, end) == Link::Outcome::done);
  };
  const Link to_rank_0(knock_at(address), Link::Kind::stream);
  greet(to_rank_0);
  Message answer, told, heard;
  REQUIRE(to_rank_0.receive(answer, end) == Link::Outcome::done);
  REQUIRE(to_rank_0.receive(told, end) == Link::Outcome::done);
  constexpr std::size_t session_at = 1, places_at = session_at + 16, place_bytes = 20, port_in_place = 16;
  REQUIRE(told.bytes.size() == places_at + 3 * place_bytes);
  std::uint16_t port = 0;
  std::memcpy(&port, told.bytes.data() + places_at + place_bytes + port_in_place, sizeof port);
  const std::string rank_1 = fmt::format("127.0.0.1:{}", port);

  Descriptor connected = knock_at(rank_1);
  const int stale = connected.get();
  const Link of_another_meeting(std::move(connected), Link::Kind::stream);
  greet(of_another_meeting);
  pollfd closed{stale, POLLIN, 0};
  CHECK(poll(&closed, 1, 10'000) == 1);
  CHECK(of_another_meeting.receive(heard, end) == Link::Outcome::closed);

  std::memcpy(greeting.session.data(), told.bytes.data() + session_at, greeting.session.size());
  const Link to_rank_1(knock_at(rank_1), Link::Kind::stream);
  greet(to_rank_1);
  CHECK(to_rank_0.send("2>0", -1, end) == Link::Outcome::done);
  CHECK(to_rank_1.send("2>1", -1, end) == Link::Outcome::done);
  REQUIRE(to_rank_1.receive(heard, end) == Link::Outcome::done);
  CHECK(heard.bytes == "1>2");
  CHECK(ranks.outcome(0) == expected_of(0, 3));
  CHECK(ranks.outcome(1) == expected_of(1, 3));
}

TEST_CASE("whoever sends no greeting of the team is ignored, whatever it sends, and the ranks meet all the same") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin([&] { return met_over(address, {0, 2, ranks.name}); });
  const Descriptor silent = knock_at(address), speaking = knock_at(address), slow = knock_at(address),
                   other_team = knock_at(address), out_of_range = knock_at(address);
  REQUIRE(out_of_range);
  const auto put = [](const Descriptor& to, std::string_view bytes) {
    CHECK(send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  };
  put(speaking, "GET / HTTP/1.1\r\n\r\n");
  put(slow, std::string("\x3c\0\0", 3));  // the begin of a length, and no more
  RawGreeting greeting;
  greeting.rank = 1;
  greeting.world = 2;
  put(other_team, {reinterpret_cast<const char*>(&greeting), sizeof greeting});
  greeting.team = manifest::Hasher().field("kiln-team-network").field(std::int64_t{1}).field(ranks.name).finish();
  greeting.rank = 2;
  put(out_of_range, {reinterpret_cast<const char*>(&greeting), sizeof greeting});
  CHECK(is_closed_unanswered(speaking));
  CHECK(is_closed_unanswered(other_team));
  CHECK(is_closed_unanswered(out_of_range));
  std::vector<Descriptor> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(knock_at(address));
  ranks.begin([&] { return met_over(address, {1, 2, ranks.name}); });
  CHECK(ranks.outcome(0) == expected_of(0, 2));
  CHECK(ranks.outcome(1) == expected_of(1, 2));
}

TEST_CASE(
    "who listens at the address and is no rank 0 of the team is named, and waited for no longer than the time-out") {
  const std::string address = free_address();
  const Descriptor silent = listen_at(*numeric(parse_address(address)));
  REQUIRE(silent);
  Ranks ranks;
  ranks.begin([&] { return met_over(address, {1, 2, ranks.name}, milliseconds(500)); });
  const std::string said = ranks.outcome(0);
  CHECK_MESSAGE(holds(said, fmt::format("who listens at {} did not answer as rank 0 of this team", address)), said);
}

TEST_CASE("an address that is of no host, and one of another host, are said to be so") {
  Ranks ranks;
  ranks.begin([&] { return met_over("192.0.2.1:29600", {0, 2, ranks.name}, milliseconds(500)); });
  ranks.begin([&] { return met_over("nowhere.invalid:29600", {1, 2, ranks.name}, milliseconds(500)); });
  std::string said = ranks.outcome(0);
  CHECK_MESSAGE(holds(said, "192.0.2.1:29600 cannot be listened at: Cannot assign requested address"), said);
  said = ranks.outcome(1);
  CHECK_MESSAGE(holds(said, "the host is not known: "), said);
}
