#include "team/link.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <climits>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "kiln/error.hpp"

using namespace kiln::team;
using std::chrono::milliseconds;

namespace {

Clock::time_point soon() { return Clock::now() + milliseconds(50); }

struct LinkedEnds {
  LinkedEnds() { REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0); }
  int ends[2]{};
};

auto open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

void send_descriptors(int socket, int first, int second) {
  const int both[] = {first, second};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof both)] = {};
  char byte = 'x';
  iovec part{&byte, 1};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* attached = CMSG_FIRSTHDR(&header);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof both);
  std::memcpy(CMSG_DATA(attached), both, sizeof both);
  REQUIRE(sendmsg(socket, &header, 0) == 1);
}

}  // namespace

TEST_CASE("messages keep their bounds, and a descriptor comes with the message it was sent with") {
  const LinkedEnds both;
  const Link here{Descriptor(both.ends[0])}, there{Descriptor(both.ends[1])};
  const Descriptor file(memfd_create("link_test", MFD_CLOEXEC));
  REQUIRE(here.send("one", -1, soon()) == Link::Outcome::done);
  REQUIRE(here.send("two", file.get(), soon()) == Link::Outcome::done);
  Message message;
  REQUIRE(there.receive(message, soon()) == Link::Outcome::done);
  CHECK(message.bytes == "one");
  CHECK_FALSE(message.descriptor);
  REQUIRE(there.receive(message, soon()) == Link::Outcome::done);
  CHECK(message.bytes == "two");
  REQUIRE(message.descriptor);
  CHECK((fcntl(message.descriptor.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(there.receive(message, soon()) == Link::Outcome::late);
}

TEST_CASE("what the other end said last is read, also where it left messages unread") {
  const LinkedEnds both;
  const Link here{Descriptor(both.ends[0])};
  {
    const Link there{Descriptor(both.ends[1])};
    REQUIRE(here.send("never read", -1, soon()) == Link::Outcome::done);
    REQUIRE(there.send("last words", -1, soon()) == Link::Outcome::done);
  }
  Message message;
  REQUIRE(here.receive(message, soon()) == Link::Outcome::done);
  CHECK(message.bytes == "last words");
  CHECK(here.receive(message, soon()) == Link::Outcome::closed);
  CHECK(here.send("anything", -1, soon()) == Link::Outcome::closed);
}

TEST_CASE("what cannot be sent is an error, and no closed end") {
  const LinkedEnds both;
  const Link here{Descriptor(both.ends[0])}, there{Descriptor(both.ends[1])};
  CHECK_THROWS_WITH_AS(static_cast<void>(here.send("x", 1'000'000, soon())),
                       "sending to a rank: sendmsg: Bad file descriptor", kiln::Error);
  REQUIRE(here.send("y", -1, soon()) == Link::Outcome::done);
  Message message;
  REQUIRE(there.receive(message, soon()) == Link::Outcome::done);
  CHECK(message.bytes == "y");
}

TEST_CASE("a time-out past the clock's last time ends then, and a negative one now") {
  CHECK(end_after(milliseconds::max()) > Clock::now() + std::chrono::years(100));
  CHECK(milliseconds_until(end_after(milliseconds::max())) == INT_MAX);
  CHECK(milliseconds_until(end_after(milliseconds::min())) == 0);
  const auto begin = Clock::now();
  CHECK(end_after(milliseconds(1'000)) >= begin + milliseconds(1'000));
  CHECK(end_after(milliseconds(1'000)) < begin + milliseconds(60'000));
}

TEST_CASE("a buffer that stays full is late, and neither two descriptors nor too long a message leave any behind") {
  const LinkedEnds both;
  const Link here{Descriptor(both.ends[0])}, there{Descriptor(both.ends[1])};
  const auto before = open_descriptors();
  send_descriptors(both.ends[0], both.ends[0], both.ends[1]);
  Message message;
  CHECK(there.receive(message, soon()) == Link::Outcome::closed);
  CHECK(open_descriptors() == before);
  const std::string too_long(Link::longest_message + 1, 'x');
  REQUIRE(here.send(too_long, both.ends[0], soon()) == Link::Outcome::done);
  CHECK(there.receive(message, soon()) == Link::Outcome::closed);
  CHECK(open_descriptors() == before);
  Link::Outcome state = Link::Outcome::done;
  for (int i = 0; i < 10'000 && state == Link::Outcome::done; ++i) state = here.send(too_long, -1, soon());
  CHECK(state == Link::Outcome::late);
}
