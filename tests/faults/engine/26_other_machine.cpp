// Another device, driver or compiler: machine code may no longer fit, the record stays.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

/// Stores the same record, and its machine code as `rekey` changes it.
void store_anew(const fs::path& path, const std::function<void(const jit::Specialisation&, store::CubinRow&)>& rekey) {
  const manifest::Op op = scale_op();
  store::Record record = records_of(path).at(0);
  one_choice(record);
  const auto machine_code = [&] {
    const auto file = store::File::open(path, store::Access::read_only);
    std::vector<store::CubinRow> rows;
    const auto winner = *manifest::parse_config(*op.find("tiled"), record.at_edge().config);
    for (const auto& [name, config] : {std::pair("tiled", winner), std::pair("tiled", op.find("tiled")->default_config),
                                       std::pair("plain", op.find("plain")->default_config)}) {
      const jit::Specialisation specialisation = specialisation_of(op, name, config);
      auto row = file->find_cubin(jit::cubin_key(specialisation, jit::compiler_identity()));
      REQUIRE(row);
      rekey(specialisation, *row);
      rows.push_back(std::move(*row));
    }
    return rows;
  }();
  fs::remove(path);
  store::File::open(path, store::Access::read_write)->put_all({&record, 1}, machine_code);
}

/// Tuned elsewhere: the machine code has the key that another NVRTC would have given it.
void rekey_for(const fs::path& path, const std::string& compiler) {
  store_anew(path, [&](const jit::Specialisation& specialisation, store::CubinRow& row) {
    row.key = jit::cubin_key(specialisation, compiler);
    row.compiler = compiler;
  });
}

std::int64_t cubins_of(const fs::path& path) {
  return store::File::open(path, store::Access::read_only)->stats().cubins;
}

}  // namespace

TEST_CASE("fault 26: machine code of another NVRTC is a miss, the record of it a hit, and neither is lost") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  rekey_for(overlay, "nvrtc 12.0 build of another machine");
  const std::int64_t before = cubins_of(overlay);
  {
    const Engine engine(e2e::options(overlay, MissPolicy::error));
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(engine.stats().tunes == 0);
    CHECK(engine.stats().compiles == 1);
    CHECK(engine.stats().misses.no_cubin == 1);
    CHECK(engine.stats().quarantined == 0);
  }
  CHECK(cubins_of(overlay) == before + 1);
  const Engine again(e2e::options(overlay, MissPolicy::error));
  CHECK(ScaleCall(again, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(again.stats().compiles == 0);
  CHECK(again.stats().misses.no_cubin == 0);
  tally(26, 2, "launches from machine code of another NVRTC");
}

TEST_CASE(
    "fault 26: machine code under the key of an earlier version of Kiln serves, and is replaced once it is refused") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  store_anew(overlay, [](const jit::Specialisation& specialisation, store::CubinRow& row) {
    row.key = jit::cubin_key_over_text(specialisation, row.compiler).value();
  });
  {
    const Engine engine(e2e::options(overlay, MissPolicy::error));
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(engine.stats().compiles == 0);
    CHECK(engine.stats().misses.no_cubin == 0);
  }
  for (const std::int64_t compiles : {1, 0}) {
    if (compiles > 0) control("fail cuModuleLoadDataEx CUDA_ERROR_INVALID_IMAGE");
    const Engine engine(e2e::options(overlay, MissPolicy::error));
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(engine.stats().compiles == compiles);
    CHECK(engine.stats().misses.refused_cubin == compiles);
  }
  tally(26, 3, "launches from machine code under the key of an earlier version");
}

TEST_CASE("child: without NVRTC the machine code of any NVRTC serves" * doctest::skip()) {
  const Machine machine;
  const Engine engine(e2e::options(std::getenv("KILN_CACHE"), MissPolicy::error));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(ScaleCall(engine, 64, 99).launch(machine.stream()) == Origin::default_);
  CHECK(engine.stats().misses.no_cubin == 0);
}

TEST_CASE("fault 26: without an NVRTC, machine code of any NVRTC serves") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  rekey_for(overlay, "nvrtc 12.0 build of another machine");
  run_child("child: without NVRTC the machine code of any NVRTC serves",
            "KILN_NVRTC_LIBRARY=none " + variable("KILN_CACHE", overlay));
  tally(26, 2, "launches without an NVRTC from machine code of another one");
}

TEST_CASE("child: without NVRTC a stand-in without machine code gives way to the default" * doctest::skip()) {
  const Machine machine;
  const Engine engine(e2e::options(std::getenv("KILN_CACHE"), MissPolicy::nearest));
  const ScaleCall call(engine, 64, 128);
  CHECK(call.launch(machine.stream()) == Origin::default_);
  const Explanation explained = engine.explain(call.op, call.problem);
  CHECK(explained.origin == Origin::default_);
  CHECK(contains(explained.why, "there is no NVRTC"));
}

TEST_CASE(
    "fault 26: without an NVRTC, a near record whose machine code no file has gives way to the default that is there") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  store::Record record = records_of(overlay).at(0);
  {
    const auto file = store::File::open(overlay, store::Access::read_write);
    file->remove_record(record.key);
    const manifest::Op op = scale_op();
    Problem near = tuned_bucket(op);
    near.axes[0] *= 2;
    record.key = manifest::record_key(op, near, h200(), Regime::cold_l2);
    record.bucket = manifest::to_string(op, near);
    one_choice(record).config = "threads=256 vector=1";
    file->put(record, nullptr);
  }
  run_child("child: without NVRTC a stand-in without machine code gives way to the default",
            "KILN_NVRTC_LIBRARY=none " + variable("KILN_CACHE", overlay));
  tally(26, 1, "launches without an NVRTC nor a near record's machine code");
}

TEST_CASE("child: another NVRTC compiles for itself" * doctest::skip()) {
  const Machine machine;
  const Engine engine(e2e::options(std::getenv("KILN_CACHE"), MissPolicy::error));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().compiles == 1);
  CHECK(engine.stats().misses.no_cubin == 1);
}

TEST_CASE("fault 26: a library that is another NVRTC, though of the same version, is another compiler") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  run_child("child: another NVRTC compiles for itself", under_faulty_nvrtc() + variable("KILN_CACHE", overlay));
  tally(26, 1, "launches under an NVRTC of another build");
}

TEST_CASE("fault 26: another device has its own records and machine code; the first one's are served when it is back") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  std::int64_t devices = 0;
  for (const char* other : {"sm 80", "multiprocessors 114", "l2 41943040"}) {
    CAPTURE(std::string(other));
    control(other);
    const Machine machine;
    const Engine engine(e2e::options(overlay, MissPolicy::error));
    const ScaleCall call(engine, 64, 128);
    CHECK(error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); }).kind() ==
          ErrorKind::not_tuned);
    CHECK(engine.stats().misses.absent == 1);
    const Explanation explained = engine.explain(call.op, call.problem);
    CHECK(explained.miss == "absent");
    CHECK(explained.origin == Origin::nearest);  // the first device's record, named as a stand-in
    control("sm 90; multiprocessors 132; l2 62914560");
    ++devices;
  }
  const Machine machine;
  const Engine engine(e2e::options(overlay, MissPolicy::error));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().compiles == 0);
  CHECK(records_of(overlay).size() == 1);
  tally(26, devices, "other devices");
}

TEST_CASE("fault 26: another driver keeps records and machine code; what it cannot load is compiled once more") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  control("driver 12040");
  {
    const Machine machine;
    const Engine engine(e2e::options(overlay, MissPolicy::error));
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(engine.stats().compiles == 0);
  }
  {
    const Machine machine;
    control("fail cuModuleLoadDataEx CUDA_ERROR_NO_BINARY_FOR_GPU");
    const Engine engine(e2e::options(overlay, MissPolicy::error));
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
    CHECK(engine.stats().compiles == 1);
    CHECK(engine.stats().misses.refused_cubin == 1);
    CHECK(engine.stats().tunes == 0);
  }
  control("driver 13000");
  tally(26, 2, "other drivers");
}

TEST_CASE("child: the same bucket on another architecture" * doctest::skip()) {
  const Machine machine;
  const Engine engine(e2e::options(std::getenv("KILN_CACHE")));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().tunes == 1);
}

TEST_CASE("fault 26: two architectures share one file") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  run_child("child: the same bucket on another architecture", "FAKE_CUDA='sm 80' " + variable("KILN_CACHE", overlay));
  CHECK(records_of(overlay).size() == 2);
  const Machine machine;
  const Engine engine(e2e::options(overlay, MissPolicy::error));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().compiles == 0);
  tally(26, 1, "files shared by two architectures");
}

}  // namespace kiln::faults
