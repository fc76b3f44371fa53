// A Redis server that machines share, at what servers go through while engines work.
#include "e2e/shared.hpp"
#include "redis/server.hpp"

namespace e2e {

using kiln::Engine;
using kiln::Origin;
using kiln::testing::Server;

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

TEST_CASE("machines that meet the same buckets at once at a server tune each once, and a new one serves all") {
  const Machine machine;
  const Server server;
  check_machines("server", server.address(), 0);
}

TEST_CASE("a server that begins again empty while machines work costs tunes and no launch") {
  const Machine machine;
  Server server;
  const TemporaryFolder folder;
  const int machines = chosen_count("KILN_TEST_MACHINES", 4), buckets = chosen_count("KILN_TEST_BUCKETS", 8);
  Met met;
  meet(met, folder, server.address(), machines, buckets, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server.stop();
    server.start();
  });
  CHECK(met.tunes >= buckets);
  CHECK(met.tunes <= std::int64_t{machines} * buckets);
  kiln::testing::KeptRow("restart").with("machines", machines).with("buckets", buckets).with("tunes", met.tunes.load());
  MESSAGE(machines, " machines tuned ", buckets, " buckets ", met.tunes.load(), " times");
  const Engine engine(machine_at(server.address(), folder, "late.kiln"));
  const kiln::Op op = engine.op("scale");
  CHECK(op.plan(bucket_of(op, 0)).origin() == Origin::overlay);
}

TEST_CASE("a server that stops while a launch asks it fails no launch and makes none wait past its limits") {
  const Machine machine;
  const Server server;
  const TemporaryFolder folder;
  const int stops = chosen_count("KILN_TEST_STOPS", 4);
  // What a launch of a new engine takes without a server, most of all for tuning.
  constexpr std::chrono::milliseconds limit(1100), slack(5000);
  Clock::duration longest{};
  for (int done = 0; done < stops; ++done) {
    const Engine engine(machine_at(server.address(), folder, ""));
    const ScaleCall call(engine, 64, 128);
    std::jthread stopper([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(done * 977 % 4000));
      server.signal(SIGSTOP);
    });
    const auto began = Clock::now();
    CHECK(kiln::is_hit(call.launch(machine.stream())));
    longest = std::max(longest, Clock::now() - began);
    stopper.join();
    server.signal(SIGCONT);
  }
  CHECK(longest < limit + slack);
  kiln::testing::KeptRow("launches")
      .with("back_end", "server")
      .with("stops", stops)
      .with("longest_seconds", std::chrono::duration<double>(longest).count());
  MESSAGE(stops, " stops, the longest launch took ", std::chrono::duration<double>(longest).count(), " s");
}

TEST_CASE("the claim of a machine that died keeps a bucket from others until its term ends, at a server") {
  const Machine machine;
  const Server server;
  check_takeover("server", server.address(), [&] {
    const std::string answer = server.tell("KEYS kiln:claim:*");
    const std::size_t begin = answer.find("kiln:claim:");
    REQUIRE(begin != std::string::npos);
    const std::string key = answer.substr(begin, answer.find("\r\n", begin) - begin);
    CHECK(contains(server.tell("PEXPIRE \"" + key + "\" 2000"), ":1"));
  });
}

TEST_CASE("the commands and the doctor take a server's address, and say nothing of its secrets") {
  const Server server({"--requirepass", "hunter2"});
  const TemporaryFolder folder;
  const std::string first = globals(folder, "first.kiln"), second = globals(folder, "second.kiln");
  const std::string remote = " --remote unix://" + server.socket() + " ", password = "KILN_REDIS_PASSWORD=hunter2 ";
  CHECK(contains(expect(0, password + "kiln tune scale rows=64 cols=128 dtype=f32" + remote + first), "tuned"));
  CHECK(contains(expect(0, password + "kiln cache ls --shared" + remote + second), "1 record"));
  CHECK(value_of(expect(0, password + "kiln cache pull --json" + remote + second), "written") == "1");
  CHECK(contains(shell(password + "kiln doctor" + remote + first).output, "it answers, with 1 group"));
  for (const std::string& login : {std::string(), std::string(":hunter22@"), std::string("somebody:hunter2@")}) {
    const std::string told = expect(4, "kiln cache pull --remote unix://" + login + server.socket() + second);
    CHECK_MESSAGE(contains(told, login.empty() ? "(NOAUTH)" : "(WRONGPASS)"), told);
    CHECK_FALSE(contains(told, "hunter2"));
    CHECK_FALSE(contains(told, "somebody"));
  }
}

}  // namespace e2e
