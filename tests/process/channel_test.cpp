#include "process/channel.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>

using namespace kiln::process;

namespace {

struct Ends {
  Ends() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); }
  int ends[2]{};
};

constexpr std::chrono::milliseconds soon{50};

}  // namespace

TEST_CASE("a message arrives as it was sent, however long") {
  const Ends both;
  const Channel here(both.ends[0]);
  const Channel there(both.ends[1]);
  const nlohmann::json sent{{"text", std::string(8 << 20, 'x')}, {"bytes", nlohmann::json::binary({0, 1, 255})}};
  std::thread sender([&] { CHECK(here.send(sent)); });
  nlohmann::json got;
  CHECK(there.receive(got) == Channel::Outcome::received);
  sender.join();
  CHECK(got == sent);
}

TEST_CASE("silence is late, half a message too, and an end that is gone is closed") {
  const Ends both;
  const Channel here(both.ends[0]);
  nlohmann::json got;
  {
    const Channel there(both.ends[1]);
    CHECK(here.receive(got, soon) == Channel::Outcome::late);
    const std::uint64_t length = 100;
    REQUIRE(write(there.descriptor(), &length, sizeof length) == sizeof length);
    REQUIRE(write(there.descriptor(), "abc", 3) == 3);
    CHECK(here.receive(got, soon) == Channel::Outcome::late);
  }
  CHECK(here.receive(got, soon) == Channel::Outcome::closed);
  CHECK_FALSE(here.send({{"anything", 1}}));
}

TEST_CASE("what is no message is told so, and no memory is taken for it") {
  for (const std::uint64_t length : {std::uint64_t{3}, ~std::uint64_t{0}}) {
    const Ends both;
    const Channel here(both.ends[0]);
    const Channel there(both.ends[1]);
    REQUIRE(write(there.descriptor(), &length, sizeof length) == sizeof length);
    REQUIRE(write(there.descriptor(), "\xff\xff\xff", 3) == 3);
    nlohmann::json got;
    CHECK(here.receive(got, soon) == Channel::Outcome::unreadable);
  }
}
