// Rows whose digests hold and whose content Kiln would not have written: whoever can write a file can write digests.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

struct Forged {
  const char* implementation;
  std::string config;
  const char* said;  // of why it cannot serve
};

const std::vector<Forged>& forged() {
  static const std::vector<Forged> all = {
      {"tiled", "threads=96 vector=4", "outside the declared space"},
      {"tiled", "threads=128 vector=2", "outside the declared space"},
      {"tiled", "threads=96", "outside the declared space"},
      {"tiled", "", "outside the declared space"},
      {"tiled", "threads=128 vector=4 unroll=8", "outside the declared space"},
      {"tiled", "threads=128 threads=128 vector=4", "outside the declared space"},
      {"tiled", "threads=-128 vector=4", "outside the declared space"},
      {"tiled", "threads=128 vector=4294967300", "outside the declared space"},            // 4 in 32 bits
      {"tiled", "threads=128 vector=18446744073709551620", "outside the declared space"},  // 4 in 64 bits
      {"tiled", "threads=0x80 vector=4", "outside the declared space"},
      {"tiled", "threads=128 vector=4>; evil<1", "outside the declared space"},
      {"tiled", std::string("threads=128\0vector=4", 20), "outside the declared space"},
      {"tiled", "threads=128 vector=4\nthreads=64 vector=1", "outside the declared space"},
      {"tiled", std::string(1 << 20, 'x'), "outside the declared space"},
      {"plain", "threads=128 vector=4", "outside the declared space"},
      {"elsewhere", "threads=128 vector=4", "not declared by the op"},
      {"", "threads=128 vector=4", "not declared by the op"},
      {"../tiled", "threads=128 vector=4", "not declared by the op"},
  };
  return all;
}

void forge(const fs::path& path, const Forged& what) {
  change_record(path, [&](store::Record& record) {
    store::Choice& choice = one_choice(record);
    choice.implementation = what.implementation;
    choice.config = what.config;
  });
}

}  // namespace

TEST_CASE("fault 24: a stored config outside the declared space is a miss that says why, and serves nobody") {
  const Machine machine;
  for (const Forged& each : forged()) {
    CAPTURE(each.config.substr(0, 80));
    const TemporaryFolder folder;
    const fs::path overlay = tuned_overlay(folder);
    forge(overlay, each);
    const std::int64_t launched = query("launches");
    const Engine engine(e2e::options(overlay, MissPolicy::error));
    const ScaleCall call(engine, 64, 128);
    const Error error = error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
    CHECK(error.kind() == ErrorKind::not_tuned);
    CHECK(contains(error.what(), each.said));
    CHECK(std::string_view(error.what()).size() < 2000);
    CHECK(query("launches") == launched);
    CHECK(engine.stats().misses.unusable == 1);
    const Explanation explained = engine.explain(call.op, call.problem);
    CHECK(explained.origin == Origin::default_);
    CHECK(contains(explained.why, each.said));
    CHECK(explained.miss == "unusable");
  }
  tally(24, static_cast<std::int64_t>(forged().size()), "configs outside the declared space");
}

TEST_CASE("fault 24: a record from before a parameter serves with that parameter's default") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  forge(overlay, {"tiled", "threads=128", ""});
  const Engine engine(e2e::options(overlay, MissPolicy::error));
  const ScaleCall call(engine, 64, 128);
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().tunes == 0);
  CHECK(engine.explain(call.op, call.problem).config.starts_with("threads=128 vector="));
  tally(24, 1, "records older than a parameter");
}

TEST_CASE("fault 24: a base's impossible config does not hide the overlay, nor do both stop the default") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder), base = tuned_overlay(folder, "base.kiln");
  forge(base, forged().front());
  Options chosen = e2e::options(overlay, MissPolicy::nearest);
  chosen.bases = {base};
  CHECK(ScaleCall(Engine(chosen), 64, 128).launch(machine.stream()) == Origin::overlay);
  forge(overlay, forged().front());
  const Engine engine(chosen);
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::default_);
  CHECK(engine.stats().compiles == 0);
  tally(24, 2, "layers with an impossible config");
}

TEST_CASE("fault 24: an overlay's impossible config does not hide a sound base") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder), base = tuned_overlay(folder, "base.kiln");
  forge(overlay, forged().front());
  Options chosen = e2e::options(overlay, MissPolicy::error);
  chosen.bases = {base};
  CHECK(ScaleCall(Engine(chosen), 64, 128).launch(machine.stream()) == Origin::base);
  tally(24, 1, "layers with an impossible config");
}

TEST_CASE("fault 24: a tune puts a sound record in the place of an impossible one") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  forge(overlay, forged().front());
  const Engine engine(e2e::options(overlay));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().tunes == 1);
  CHECK(engine.stats().misses.unusable == 1);
  REQUIRE(records_of(overlay).size() == 1);
  CHECK(records_of(overlay)[0].at_edge().config == "threads=128 vector=4");
  tally(24, 1, "impossible configs renewed by a tune");
}

}  // namespace kiln::faults
