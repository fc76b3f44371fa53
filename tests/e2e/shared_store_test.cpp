// A folder that machines share: one tunes, the others serve what it found, and what is wrong with it costs a tune at most.
#include <sqlite3.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "e2e/shared.hpp"

namespace e2e {

using kiln::Engine;
using kiln::MissPolicy;
using kiln::Origin;

namespace {

namespace fs = std::filesystem;

constexpr auto patience = std::chrono::seconds(60);

/// A folder to share, keys, and engines that stand for machines: each has an overlay of its own.
class Cluster {
 public:
  Cluster() {
    fs::create_directories(folder_ / "shared");
    fs::create_directories(folder_ / "keys");
    fs::permissions(folder_ / "keys", fs::perms(0755));
  }
  [[nodiscard]] kiln::Options machine(const char* overlay, MissPolicy on_miss = MissPolicy::tune) const {
    kiln::Options chosen = options(folder_ / overlay, on_miss);
    chosen.remote = shared().string();
    return chosen;
  }
  [[nodiscard]] fs::path shared() const { return folder_ / "shared"; }
  [[nodiscard]] fs::path secret() const { return folder_ / "cluster.secret"; }
  [[nodiscard]] fs::path keys() const { return folder_ / "keys"; }
  void make_key() const {
    expect(0, "openssl genpkey -algorithm ed25519 -out " + secret().string());
    expect(0, "openssl pkey -in " + secret().string() + " -pubout -out " + (keys() / "cluster.pem").string());
    fs::permissions(keys() / "cluster.pem", fs::perms(0644));
  }
  /// Has another machine tune the bucket of scale.
  void tune(const Machine& machine, std::int64_t rows, const kiln::Options& chosen) const {
    const Engine engine(chosen);
    ScaleCall(engine, rows, 128).launch(machine.stream());
    CHECK(engine.stats().tunes == 1);
    CHECK(engine.wait_for_tunes(patience));
    CHECK(engine.stats().shared_bytes > 0);
  }
  [[nodiscard]] std::vector<fs::path> values() const {
    std::vector<fs::path> found;
    for (const auto& each : fs::recursive_directory_iterator(shared()))
      if (each.path().extension() == ".row" && each.path().parent_path().filename() != "code")
        found.push_back(each.path());
    return found;
  }
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("what one machine tuned another one serves, under each miss policy, and keeps in its own overlay") {
  const Machine machine;
  const Cluster cluster;
  cluster.tune(machine, 64, cluster.machine("first.kiln"));
  SUBCASE("tune") {
    const Engine engine(cluster.machine("second.kiln"));
    CHECK(ScaleCall(engine, 50, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(engine.stats().shared_hits == 1);
    CHECK(engine.stats().tunes == 0);
    REQUIRE(engine.wait_for_tunes(patience));  // what was fetched is in the file now
    kiln::Options alone = cluster.machine("second.kiln", MissPolicy::error);
    alone.remote = "";
    CHECK(ScaleCall(Engine(alone), 50, 128).launch(machine.stream()) == Origin::overlay);
  }
  SUBCASE("tune, in a process that does not end") {
    const Engine engine(cluster.machine("second.kiln"));
    ScaleCall(engine, 50, 128).launch(machine.stream());
    kiln::Options alone = cluster.machine("second.kiln", MissPolicy::nearest);
    alone.remote = "";
    const auto end = std::chrono::steady_clock::now() + patience;
    const auto is_kept = [&] {
      const Engine other(alone);
      const kiln::Op op = other.op("scale");
      return other.explain(op, bucket_of(op, 2)).origin == Origin::overlay;
    };
    while (!is_kept()) REQUIRE(std::chrono::steady_clock::now() < end);
  }
  SUBCASE("error") {
    const Engine engine(cluster.machine("second.kiln", MissPolicy::error));
    CHECK(ScaleCall(engine, 50, 128).launch(machine.stream()) == Origin::overlay);
    const ScaleCall other(engine, 500, 128);
    CHECK(error_of([&] { other.op.launch(other.problem, other.arguments, machine.stream()); }).kind() ==
          kiln::ErrorKind::not_tuned);
    CHECK(engine.stats().shared_misses == 1);
  }
  for (const MissPolicy policy : {MissPolicy::nearest, MissPolicy::background}) {
    const char* const name = policy == MissPolicy::nearest ? "nearest" : "background";
    SUBCASE(name) {
      kiln::Options chosen = cluster.machine("second.kiln", policy);
      chosen.worker = fs::path(KILN_COMMAND).parent_path() / "kiln-worker";
      const Engine engine(chosen);
      const ScaleCall call(engine, 50, 128);
      CHECK(is_fallback(call.launch(machine.stream())));
      REQUIRE(engine.wait_for_tunes(patience));
      CHECK(call.launch(machine.stream()) == Origin::overlay);
      CHECK(call.launch(machine.stream()) == Origin::hot);
      CHECK(engine.stats().tunes == 0);
      CHECK(engine.stats().shared_errors == 0);
      CHECK(engine.warnings().empty());
    }
  }
}

TEST_CASE("a launch does not wait for the overlay to take what was fetched, and the overlay has it later") {
  const Machine machine;
  const Cluster cluster;
  cluster.make_key();  // with its machine code, nothing is compiled
  kiln::Options first = cluster.machine("first.kiln");
  first.signing_key = cluster.secret();
  cluster.tune(machine, 64, first);
  cluster.tune(machine, 256, first);
  kiln::Options chosen = cluster.machine("second.kiln");
  chosen.trusted_keys = {cluster.keys()};
  {
    const Engine made(chosen);
    ScaleCall(made, 128, 128).launch(machine.stream());
  }
  const auto engine = std::make_unique<Engine>(chosen);
  sqlite3* other = nullptr;
  REQUIRE(sqlite3_open((cluster.folder() / "second.kiln").c_str(), &other) == SQLITE_OK);
  REQUIRE(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
  const auto is_brief = [](const auto& work) {
    const auto begun = std::chrono::steady_clock::now();
    work();
    return std::chrono::steady_clock::now() - begun < std::chrono::seconds(4);  // a write waits 5 s for the lock
  };
  const auto launch = [&](std::int64_t rows) {
    return is_brief([&] { CHECK(ScaleCall(*engine, rows, 128).launch(machine.stream()) == Origin::overlay); });
  };
  CHECK(launch(50));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));  // the first rows are being written now
  CHECK(launch(200));
  CHECK(is_brief([&] { CHECK_FALSE(engine->wait_for_tunes(std::chrono::milliseconds(0))); }));
  CHECK(is_brief([&] { CHECK_FALSE(engine->wait_for_tunes(std::chrono::milliseconds(100))); }));
  CHECK(engine->stats().tunes == 0);
  REQUIRE(sqlite3_close(other) == SQLITE_OK);
  SUBCASE("when asked") { REQUIRE(engine->wait_for_tunes(patience)); }
  SUBCASE("or else soon") {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!engine->wait_for_tunes(std::chrono::milliseconds(0)) && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(engine->warnings().empty());
  kiln::Options alone = cluster.machine("second.kiln", MissPolicy::error);
  alone.remote = "";
  for (const std::int64_t rows : {50, 200})
    CHECK(ScaleCall(Engine(alone), rows, 128).launch(machine.stream()) == Origin::overlay);
}

TEST_CASE("in the background, what cannot be tuned here for want of a worker is fetched all the same") {
  const Machine machine;
  const Cluster cluster;
  cluster.tune(machine, 64, cluster.machine("first.kiln"));
  kiln::Options chosen = cluster.machine("second.kiln", MissPolicy::background);
  chosen.isolation = kiln::Isolation::in_process;
  const Engine engine(chosen);
  const ScaleCall call(engine, 50, 128);
  CHECK(is_fallback(call.launch(machine.stream())));
  REQUIRE(engine.wait_for_tunes(patience));
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().tunes == 0);
}

TEST_CASE("a bucket that is prepared, and an op that is loaded whole, wait for the shared store's answer") {
  const Machine machine;
  const Cluster cluster;
  cluster.tune(machine, 64, cluster.machine("first.kiln"));
  kiln::Options chosen = cluster.machine("second.kiln", MissPolicy::nearest);
  bool is_eager = false;
  SUBCASE("prepared") {}
  SUBCASE("eager") { is_eager = true; }
  if (is_eager) chosen.loading = kiln::Loading::eager;
  const Engine engine(chosen);
  const ScaleCall call(engine, 50, 128);
  if (!is_eager) engine.prepare(call.op, {&call.problem, 1}, machine.stream());
  CHECK(is_hit(call.launch(machine.stream())));
}

TEST_CASE("machines that meet the same buckets at once in a folder tune each about once, and a new one serves all") {
  const Machine machine;
  const Cluster cluster;
  check_machines("folder", cluster.shared(), (chosen_count("KILN_TEST_BUCKETS", 8) + 9) / 10);
  CHECK(cluster.values().size() == static_cast<std::size_t>(chosen_count("KILN_TEST_BUCKETS", 8)));
}

TEST_CASE("a machine that dies while it tunes" * doctest::skip()) {
  const Machine machine;
  const char* const address = std::getenv("KILN_TEST_ADDRESS");
  REQUIRE(address != nullptr);
  const TemporaryFolder folder;
  kiln::Options chosen = machine_at(address, folder, "");
  chosen.on_tune = [](const kiln::TuneEvent& event) {
    if (event.kind == kiln::TuneEvent::Kind::candidate) raise(SIGKILL);
  };
  const Engine engine(chosen);
  const kiln::Op op = engine.op("scale");
  static_cast<void>(op.plan(bucket_of(op, 0)));
}

TEST_CASE("the claim of a machine that died keeps a bucket from others until its term ends, in a folder") {
  const Machine machine;
  const Cluster cluster;
  check_takeover("folder", cluster.shared(), [&] {
    for (const auto& each : fs::recursive_directory_iterator(cluster.shared()))
      if (each.path().extension() == ".claim")
        fs::last_write_time(each.path(), fs::last_write_time(each.path()) - std::chrono::seconds(28));
  });
}

TEST_CASE("machine code is shared under a trusted key's signature, and compiled without") {
  const Machine machine;
  const Cluster cluster;
  cluster.make_key();
  kiln::Options first = cluster.machine("first.kiln");
  first.signing_key = cluster.secret();
  cluster.tune(machine, 64, first);
  kiln::Options second = cluster.machine("second.kiln");
  SUBCASE("trusted") {
    second.trusted_keys = {cluster.keys()};
    second.trust = kiln::TrustPolicy::signed_files;
    const Engine engine(second);
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(engine.stats().tunes == 0);
    CHECK(engine.stats().compiles == 0);
    CHECK(engine.warnings().empty());
  }
  SUBCASE("not trusted") {
    const Engine engine(second);
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(engine.stats().tunes == 0);
    CHECK(engine.stats().compiles > 0);
    REQUIRE(engine.warnings().size() == 1);
    CHECK(contains(engine.warnings()[0], "no folder of trusted keys holds the key"));
  }
  SUBCASE("by the policy `signed`, which takes no record of a stranger's") {
    second.trust = kiln::TrustPolicy::signed_files;
    const Engine engine(second);
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(engine.stats().tunes == 1);
  }
  SUBCASE("that was changed since") {
    for (const auto& each : fs::directory_iterator(cluster.shared() / "code")) {
      std::fstream file(each.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-1, std::ios::end);
      file.put('x');
    }
    second.trusted_keys = {cluster.keys()};
    const Engine engine(second);
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(engine.stats().tunes == 0);
    CHECK(engine.stats().compiles > 0);
  }
}

TEST_CASE("a value that does not hold costs a tune, whose record takes its place") {
  const Machine machine;
  const Cluster cluster;
  cluster.tune(machine, 64, cluster.machine("first.kiln"));
  const auto files = cluster.values();
  REQUIRE(files.size() == 1);
  const auto change = [&](const std::string& from, const std::string& to) {
    std::ifstream in(files[0], std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    std::ofstream(files[0], std::ios::binary) << text;
  };
  SUBCASE("flipped") { change("threads=", "threadz="); }
  SUBCASE("cut") { fs::resize_file(files[0], fs::file_size(files[0]) / 2); }
  SUBCASE("empty") { fs::resize_file(files[0], 0); }
  SUBCASE("of another format") { change("kiln shared 1", "kiln shared 9"); }
  const Engine engine(cluster.machine("second.kiln"));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().tunes == 1);
  REQUIRE(engine.wait_for_tunes(patience));
  CHECK(ScaleCall(Engine(cluster.machine("third.kiln", MissPolicy::error)), 64, 128).launch(machine.stream()) ==
        Origin::overlay);
}

TEST_CASE("a shared store that is not there is told once, and everything goes on") {
  const Machine machine;
  const Cluster cluster;
  kiln::Options chosen = cluster.machine("first.kiln");
  chosen.remote = (cluster.folder() / "missing").string();
  const Engine engine(chosen);
  for (const std::int64_t rows : {16, 32, 64})
    CHECK(ScaleCall(engine, rows, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().tunes == 3);
  CHECK(engine.stats().shared_errors >= 1);
  REQUIRE(engine.warnings().size() == 1);
  CHECK(contains(engine.warnings()[0], "create or mount it"));
  CHECK_FALSE(fs::exists(cluster.folder() / "missing"));
}

TEST_CASE("a setting that can never work is refused at the start, in an option and in the environment") {
  const Machine machine;
  const Cluster cluster;
  kiln::Options chosen = cluster.machine("first.kiln");
  const auto refused = [&](const char* part) {
    const kiln::Error error = error_of([&] { const Engine engine(chosen); });
    CHECK_MESSAGE(contains(error.what(), part), error.what());
    return error.kind();
  };
  chosen.remote = "shared";
  CHECK(refused("full path") == kiln::ErrorKind::bad_input);
  chosen.remote.reset();
  setenv("KILN_REMOTE", "s3://bucket", 1);
  CHECK(refused("s3://") == kiln::ErrorKind::bad_input);
  setenv("KILN_REMOTE", cluster.shared().c_str(), 1);
  setenv("KILN_SIGNING_KEY", "/dev/null", 1);
  CHECK(refused("/dev/null") == kiln::ErrorKind::bad_input);
  unsetenv("KILN_SIGNING_KEY");
  {
    const Engine engine(chosen);
    ScaleCall(engine, 64, 128).launch(machine.stream());
  }
  unsetenv("KILN_REMOTE");
  CHECK(cluster.values().size() == 1);
}

TEST_CASE("the commands tune into the store, list, pull and push it, and the doctor says what it may") {
  const Cluster cluster;
  cluster.make_key();
  const std::string remote = " --remote " + cluster.shared().string() + " ";
  const std::string first = globals(cluster.folder(), "first.kiln"), second = globals(cluster.folder(), "second.kiln");
  const std::string keys = " --trusted-keys " + cluster.keys().string() + " ";
  expect(0, "kiln tune scale rows=64 cols=128 dtype=f32" + first);
  CHECK(contains(expect(0, "kiln cache ls --shared" + remote + first), "0 records"));
  CHECK(contains(expect(0, "kiln cache push" + remote + first + "--key " + cluster.secret().string() + keys),
                 "1 of 1 record written"));
  CHECK(contains(expect(0, "kiln cache push" + remote + first), "0 of 1 record written"));
  CHECK(contains(expect(0, "kiln cache ls --shared" + remote + second), "1 record"));
  const std::string pulled = expect(0, "kiln cache pull --json" + remote + second + keys);
  CHECK(value_of(pulled, "written") == "1");
  CHECK(std::stoi(value_of(pulled, "cubins")) > 0);
  const std::string again = expect(0, "kiln cache pull --json" + remote + second + keys);
  CHECK(value_of(again, "written") == "0");
  CHECK(value_of(again, "cubins") == "0");
  CHECK(contains(expect(0, "kiln tune scale rows=32 cols=128 dtype=f32" + remote + second), "tuned"));
  CHECK(cluster.values().size() == 2);
  CHECK(contains(expect(0, "KILN_REMOTE=" + cluster.shared().string() + " kiln cache stats" + second), "shared store"));
  CHECK(contains(shell("kiln doctor" + remote + first).output, "it answers, with 1 group"));
  const std::string missing = " --remote " + (cluster.folder() / "missing").string() + " ";
  CHECK(contains(shell("kiln doctor" + missing + first).output, "create or mount it"));
  CHECK(contains(expect(4, "kiln cache pull" + missing + first), "create or mount it"));
  CHECK(contains(expect(2, "kiln cache push" + first), "no shared store is named"));
  CHECK(contains(expect(2, "kiln cache ls --shared --remote shared" + first), "full path"));
}

}  // namespace e2e
