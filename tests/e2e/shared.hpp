// Machines that share a store: engines with overlays of their own at one address, with one key.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "e2e/command.hpp"
#include "rows.hpp"

namespace e2e {

/// A count that a longer run chooses by a variable of the environment.
inline int chosen_count(const char* variable, int usual) {
  const char* const chosen = std::getenv(variable);
  return chosen != nullptr ? std::atoi(chosen) : usual;
}

/// Makes a key whose holders run each other's machine code. Its secret half is `secret`, the folder `keys` trusts it.
inline void make_key(const TemporaryFolder& folder) {
  const std::string secret = (folder / "secret").string(), keys = (folder / "keys").string();
  std::filesystem::create_directories(keys);
  std::filesystem::permissions(keys, std::filesystem::perms(0755));
  expect(0, "openssl genpkey -algorithm ed25519 -out " + secret);
  expect(0, "openssl pkey -in " + secret + " -pubout -out " + keys + "/cluster.pem");
  std::filesystem::permissions(keys + "/cluster.pem", std::filesystem::perms(0644));
}

/// A machine with this overlay, in memory where it has no name. It has the key if there is one.
inline kiln::Options machine_at(const std::string& address, const TemporaryFolder& folder, const std::string& overlay,
                                kiln::MissPolicy on_miss = kiln::MissPolicy::tune) {
  kiln::Options chosen = options(folder / overlay.c_str(), on_miss);
  if (overlay.empty()) chosen.overlay = "";
  chosen.remote = address;
  chosen.isolation = kiln::Isolation::in_process;
  if (std::filesystem::exists(folder / "secret")) {
    chosen.signing_key = folder / "secret";
    chosen.trusted_keys = {folder / "keys"};
  }
  return chosen;
}

inline kiln::Problem bucket_of(const kiln::Op& op, int number) {
  return op.problem(
      {{"rows", std::int64_t{16} << (number % 9)}, {"cols", std::int64_t{128} << (number / 9)}, {"dtype", "f32"}});
}

struct Met {
  std::atomic<std::int64_t> tunes = 0;
  std::atomic<std::int64_t> errors = 0;  // operations that failed, as on a machine that is too busy for their limits
};

/// Has machines meet all buckets at once.
template <class Meanwhile>
void meet(Met& met, const TemporaryFolder& folder, const std::string& address, int machines, int buckets,
          Meanwhile&& meanwhile) {
  std::vector<std::jthread> threads;
  for (int each = 0; each < machines; ++each)
    threads.emplace_back([&, each] {
      const kiln::Engine engine(machine_at(address, folder, "machine" + std::to_string(each) + ".kiln"));
      const kiln::Op op = engine.op("scale");
      for (int number = 0; number < buckets; ++number)
        CHECK(kiln::is_hit(op.plan(bucket_of(op, (number + each) % buckets)).origin()));
      met.tunes += engine.stats().tunes;
      met.errors += engine.stats().shared_errors;
    });
  meanwhile();
}

/// Machines meet the same buckets at once; then a new one meets them, which tunes and compiles nothing. `second_tunes`:
/// how many of them a store's claims may let pass.
inline void check_machines(const char* back_end, const std::string& address, int second_tunes) {
  using Clock = std::chrono::steady_clock;
  const TemporaryFolder folder;
  const int machines = chosen_count("KILN_TEST_MACHINES", 4), buckets = chosen_count("KILN_TEST_BUCKETS", 8);
  make_key(folder);
  auto began = Clock::now();
  Met met;
  meet(met, folder, address, machines, buckets, [] {});
  const std::chrono::duration<double> tuned = Clock::now() - began;
  CHECK(met.tunes >= buckets);
  if (met.errors == 0) CHECK(met.tunes <= buckets + second_tunes);

  began = Clock::now();
  const kiln::Engine engine(machine_at(address, folder, "late.kiln"));
  const kiln::Op op = engine.op("scale");
  for (int number = 0; number < buckets; ++number)
    CHECK(op.plan(bucket_of(op, number)).origin() == kiln::Origin::overlay);
  const std::chrono::duration<double> served = Clock::now() - began;
  if (met.errors == 0 && engine.stats().shared_errors == 0) {
    CHECK(engine.stats().shared_hits == buckets);
    CHECK(engine.stats().tunes == 0);
    CHECK(engine.stats().compiles == 0);
    CHECK(engine.warnings().empty());
  }
  kiln::testing::KeptRow("machines")
      .with("back_end", back_end)
      .with("machines", machines)
      .with("buckets", buckets)
      .with("tunes", met.tunes.load())
      .with("errors", met.errors.load())
      .with("late_tunes", engine.stats().tunes)
      .with("late_compiles", engine.stats().compiles)
      .with("late_seconds", served.count());
  MESSAGE(machines, " machines tuned ", buckets, " buckets ", met.tunes.load(), " times in ", tuned.count(), " s with ",
          met.errors.load(), " errors; a new one served all in ", served.count(), " s");
}

/// A machine dies while it tunes a bucket of this store; another one waits for its claim, of which `shorten` leaves
/// little for the test's sake, and then tunes.
template <class Shorten>
void check_takeover(const char* back_end, const std::string& address, Shorten&& shorten) {
  const bool is_whole = chosen_count("KILN_TEST_WHOLE_TERM", 0) != 0;
  const TemporaryFolder folder;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  expect(137, variable("KILN_TEST_ADDRESS", address) + "'" + self + "' --no-skip '--test-case=a machine that dies*'");
  if (!is_whole) shorten();
  const auto began = std::chrono::steady_clock::now();
  const kiln::Engine engine(machine_at(address, folder, "second.kiln"));
  const kiln::Op op = engine.op("scale");
  CHECK(op.plan(bucket_of(op, 0)).origin() == kiln::Origin::overlay);
  CHECK(engine.stats().tunes == 1);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  CHECK(took > std::chrono::seconds(1));
  if (is_whole) kiln::testing::KeptRow("takeover").with("back_end", back_end).with("seconds", took.count());
  MESSAGE("a machine that died was replaced after ", took.count(), " s", is_whole ? "" : " of a shortened claim");
}

}  // namespace e2e
