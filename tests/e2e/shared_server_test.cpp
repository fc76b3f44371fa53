// A Redis server that machines share, at what servers go through while engines work.
#include <atomic>
#include <thread>

#include "e2e/command.hpp"
#include "redis/server.hpp"

namespace e2e {

using kiln::Engine;
using kiln::MissPolicy;
using kiln::Origin;
using kiln::testing::Server;

namespace {

using Clock = std::chrono::steady_clock;

kiln::Options at_server(const TemporaryFolder& folder, const Server& server, const std::string& overlay,
                        MissPolicy on_miss = MissPolicy::tune) {
  kiln::Options chosen = options(folder / overlay.c_str(), on_miss);
  if (overlay.empty()) chosen.overlay = "";  // in memory
  chosen.remote = server.address();
  chosen.isolation = kiln::Isolation::in_process;
  if (std::filesystem::exists(folder / "secret")) {
    chosen.signing_key = folder / "secret";
    chosen.trusted_keys = {folder / "keys"};
  }
  return chosen;
}

/// Makes a key whose holders run each other's machine code. Its secret half is `secret`, the folder `keys` trusts it.
void make_key(const TemporaryFolder& folder) {
  const std::string secret = (folder / "secret").string(), keys = (folder / "keys").string();
  std::filesystem::create_directories(keys);
  std::filesystem::permissions(keys, std::filesystem::perms(0755));
  expect(0, "openssl genpkey -algorithm ed25519 -out " + secret);
  expect(0, "openssl pkey -in " + secret + " -pubout -out " + keys + "/cluster.pem");
  std::filesystem::permissions(keys + "/cluster.pem", std::filesystem::perms(0644));
}

kiln::Problem bucket_of(const kiln::Op& op, int number) {
  return op.problem(
      {{"rows", std::int64_t{16} << (number % 9)}, {"cols", std::int64_t{128} << (number / 9)}, {"dtype", "f32"}});
}

int chosen_count(const char* variable, int usual) {
  const char* const chosen = std::getenv(variable);
  return chosen != nullptr ? std::atoi(chosen) : usual;
}

struct Met {
  std::atomic<std::int64_t> tunes = 0;
  std::atomic<std::int64_t> errors = 0;  // operations that failed, as on a machine that is too busy for their limits
};

/// Has machines, each with an engine and an overlay of its own, meet all buckets at once.
template <class Meanwhile>
void meet(Met& met, const TemporaryFolder& folder, const Server& server, int machines, int buckets,
          Meanwhile&& meanwhile) {
  std::vector<std::jthread> threads;
  for (int each = 0; each < machines; ++each)
    threads.emplace_back([&, each] {
      const Engine engine(at_server(folder, server, "machine" + std::to_string(each) + ".kiln"));
      const kiln::Op op = engine.op("scale");
      for (int number = 0; number < buckets; ++number)
        CHECK(kiln::is_hit(op.plan(bucket_of(op, (number + each) % buckets)).origin()));
      met.tunes += engine.stats().tunes;
      met.errors += engine.stats().shared_errors;
    });
  meanwhile();
}

}  // namespace

TEST_CASE("machines that meet the same buckets at once at a server tune each once, and a new one serves all") {
  const Machine machine;
  const Server server;
  const TemporaryFolder folder;
  const int machines = chosen_count("KILN_TEST_MACHINES", 4), buckets = chosen_count("KILN_TEST_BUCKETS", 8);
  make_key(folder);
  auto began = Clock::now();
  Met met;
  meet(met, folder, server, machines, buckets, [] {});
  const std::chrono::duration<double> tuned = Clock::now() - began;
  CHECK(met.tunes >= buckets);
  if (met.errors == 0) CHECK(met.tunes == buckets);

  began = Clock::now();
  const Engine engine(at_server(folder, server, "late.kiln"));
  const kiln::Op op = engine.op("scale");
  for (int number = 0; number < buckets; ++number) CHECK(op.plan(bucket_of(op, number)).origin() == Origin::overlay);
  const std::chrono::duration<double> served = Clock::now() - began;
  if (met.errors == 0 && engine.stats().shared_errors == 0) {
    CHECK(engine.stats().shared_hits == buckets);
    CHECK(engine.stats().tunes == 0);
    CHECK(engine.stats().compiles == 0);
    CHECK(engine.warnings().empty());
  }
  MESSAGE(machines, " machines tuned ", buckets, " buckets ", met.tunes.load(), " times in ", tuned.count(), " s with ",
          met.errors.load(), " errors; a new one served all in ", served.count(), " s");
}

TEST_CASE("a server that begins again empty while machines work costs tunes and no launch") {
  const Machine machine;
  Server server;
  const TemporaryFolder folder;
  const int machines = chosen_count("KILN_TEST_MACHINES", 4), buckets = chosen_count("KILN_TEST_BUCKETS", 8);
  Met met;
  meet(met, folder, server, machines, buckets, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server.stop();
    server.start();
  });
  CHECK(met.tunes >= buckets);
  CHECK(met.tunes <= std::int64_t{machines} * buckets);
  MESSAGE(machines, " machines tuned ", buckets, " buckets ", met.tunes.load(), " times");
  const Engine engine(at_server(folder, server, "late.kiln"));
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
    const Engine engine(at_server(folder, server, ""));
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
  MESSAGE(stops, " stops, the longest launch took ", std::chrono::duration<double>(longest).count(), " s");
}

TEST_CASE("the claim of a machine that was killed keeps a bucket from others until its term ends") {
  const Machine machine;
  const Server server;
  const TemporaryFolder folder;
  {
    const Engine engine(at_server(folder, server, "first.kiln"));
    const kiln::Op op = engine.op("scale");
    static_cast<void>(op.plan(bucket_of(op, 0)));
  }
  // A killed machine leaves a claim and no record. Little of its term is left, for the test's sake.
  const auto second_line = [](const std::string& answer) {
    const std::size_t head = answer.find("\r\n$"), begin = answer.find("\r\n", head + 1) + 2;
    return answer.substr(begin, answer.find("\r\n", begin) - begin);
  };
  const std::string space = second_line(server.tell("SMEMBERS kiln:spaces"));
  const std::string key = second_line(server.tell("HKEYS \"kiln:records:" + space + "\""));
  REQUIRE(contains(server.tell("FLUSHALL"), "+OK"));
  REQUIRE(contains(server.tell("SET \"kiln:claim:" + space + "|" + key + "\" killed PX 2000"), "+OK"));
  const auto began = Clock::now();
  const Engine engine(at_server(folder, server, "second.kiln"));
  const kiln::Op op = engine.op("scale");
  CHECK(op.plan(bucket_of(op, 0)).origin() == Origin::overlay);
  CHECK(engine.stats().tunes == 1);
  CHECK(Clock::now() - began > std::chrono::seconds(1));
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
