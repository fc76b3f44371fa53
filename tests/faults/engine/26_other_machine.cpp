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

constexpr const char* other_nvrtc = "nvrtc 12.0 build of another machine";

/// Adds the same code as if `compiler` had made it, in a form that the driver refuses.
void add_refused_code(const fs::path& path, const std::string& compiler) {
  const auto file = store::File::open(path, store::Access::read_write);
  std::vector<store::CubinRow> rows;
  for (store::CubinRow row : file->cubins()) {
    if (!row.label.starts_with("scale/tiled")) continue;
    const manifest::Op op = scale_op();
    const auto config = manifest::parse_config(*op.find("tiled"), row.label.substr(row.label.find(' ') + 1)).value();
    row.key = jit::cubin_key(specialisation_of(op, "tiled", config), compiler);
    row.compiler = compiler;
    std::fill(row.image.begin() + 64, row.image.end(), std::byte{0x5a});
    rows.push_back(std::move(row));
  }
  REQUIRE(!rows.empty());
  file->put_all({}, rows, store::Existing::replace);
}

void check_served(const Options& options, const Machine& machine, std::int64_t compiles, std::int64_t refused) {
  const Engine engine(options);
  CHECK(is_hit(ScaleCall(engine, 64, 128).launch(machine.stream())));
  CHECK(engine.stats().tunes == 0);
  CHECK(engine.stats().compiles == compiles);
  CHECK(engine.stats().misses.refused_cubin == refused);
  CHECK(engine.stats().misses.no_cubin == compiles - refused);
}

}  // namespace

TEST_CASE("fault 26: machine code of another NVRTC serves, and explain names both") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  rekey_for(overlay, other_nvrtc);
  check_served(e2e::options(overlay, MissPolicy::error), machine, 0, 0);
  const Engine engine(e2e::options(overlay, MissPolicy::error));
  const ScaleCall call(engine, 64, 128);
  const Explanation explained = engine.explain(call.op, call.problem);
  CHECK(explained.cubin_found);
  CHECK(explained.compiler == other_nvrtc);
  CHECK(explained.nvrtc == jit::compiler_identity());
  const std::string said =
      " has it by " + explained.compiler + ", which is not the NVRTC here (" + explained.nvrtc + "): no compile";
  CHECK_MESSAGE(contains(explained.machine_code, said), explained.machine_code);
  const std::string asked = "kiln explain scale rows=64 cols=128 dtype=f32 --templates " +
                            (fs::path(KILN_SOURCE_DIR) / "tests/e2e/ops").string() + " --overlay " + overlay.string();
  CHECK(contains(e2e::expect(0, asked), "which is not the NVRTC here (nvrtc "));
  CHECK(contains(e2e::expect(0, asked + " --json"), R"("compiler":")" + explained.compiler + '"'));
  // A file that is made of it has the same code, and what it lacked by the NVRTC here.
  write(folder / "w.toml",
        "[[workload]]\nop = \"scale\"\naxes = { rows = 64, cols = 128 }\ntypes = { dtype = \"f32\" }\n");
  const fs::path made = folder / "made.kiln";
  e2e::expect(0, "kiln prewarm " + (folder / "w.toml").string() + " -o " + made.string() +
                     asked.substr(asked.find(" --templates")));
  const auto rows = store::File::open(made, store::Access::read_only)->cubins();
  CHECK(std::ranges::count(rows, other_nvrtc, &store::CubinRow::compiler) == 3);
  CHECK(std::ranges::count(rows, explained.nvrtc, &store::CubinRow::compiler) == std::ssize(rows) - 3);
  tally(26, 1, "launches from machine code of another NVRTC");
}

TEST_CASE("fault 26: of several NVRTCs' machine code, this one's serves first, then the record's, then any") {
  const Machine machine;
  const TemporaryFolder folder;
  // What must not serve is code that the driver refuses.
  const fs::path own = tuned_overlay(folder, "own.kiln");
  add_refused_code(own, "a compiler");
  check_served(e2e::options(own, MissPolicy::error), machine, 0, 0);
  const fs::path recorded = tuned_overlay(folder, "recorded.kiln");
  rekey_for(recorded, other_nvrtc);
  add_refused_code(recorded, "a compiler");
  change_record(recorded, [](store::Record& record) {
    for (store::Choice& each : record.choices) each.compiler = other_nvrtc;
  });
  check_served(e2e::options(recorded, MissPolicy::error), machine, 0, 0);
  const fs::path any = tuned_overlay(folder, "any.kiln");  // the record names this machine's, which no row is by
  rekey_for(any, other_nvrtc);
  check_served(e2e::options(any, MissPolicy::error), machine, 0, 0);
  tally(26, 3, "orders of machine code of several NVRTCs");
}

TEST_CASE("fault 26: machine code of another NVRTC that the driver refuses is compiled here, once") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  rekey_for(overlay, other_nvrtc);
  control("fail cuModuleLoadDataEx CUDA_ERROR_INVALID_IMAGE");
  check_served(e2e::options(overlay, MissPolicy::error), machine, 1, 1);
  control("fail cuModuleLoadDataEx CUDA_ERROR_INVALID_IMAGE");
  check_served(e2e::options(overlay, MissPolicy::error), machine, 1, 1);  // its own, once more
  check_served(e2e::options(overlay, MissPolicy::error), machine, 0, 0);
  tally(26, 3, "launches where the driver refuses machine code, another NVRTC's first");
}

TEST_CASE("fault 26: machine code of another NVRTC serves neither for other sources nor from a file without trust") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  rekey_for(overlay, other_nvrtc);
  const CopiedOp op(folder);
  op.edit("scale.cuh", "threadIdx.x * Vector", "Vector * threadIdx.x");
  check_served(op.options(overlay, MissPolicy::error), machine, 1, 0);
  Options signed_only = e2e::options(folder / "empty.kiln", MissPolicy::error);
  signed_only.bases = {overlay};
  signed_only.trust = TrustPolicy::signed_files;
  check_served(signed_only, machine, 1, 0);
  tally(26, 2, "launches that another NVRTC's machine code may not serve");
}

TEST_CASE("fault 26: a tune times machine code of the NVRTC here alone") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path base = tuned_overlay(folder), overlay = folder / "tuned_here.kiln";
  rekey_for(base, other_nvrtc);
  Options options = e2e::options(overlay);
  options.bases = {base};
  const Engine engine(options);
  ScaleCall(engine, 128, 128).launch(machine.stream());
  CHECK(engine.stats().tunes == 1);
  const auto kept = store::File::open(overlay, store::Access::read_only)->cubins();
  CHECK(!kept.empty());
  for (const store::CubinRow& row : kept) CHECK(row.compiler == jit::compiler_identity());
  tally(26, 1, "tunes beside another NVRTC's machine code");
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
    record.key = manifest::Bucket({op, h200(), Regime::cold_l2}, near).key();
    record.bucket = manifest::to_string(op, near);
    one_choice(record).config = "threads=256 vector=1";
    file->put(record, nullptr);
  }
  run_child("child: without NVRTC a stand-in without machine code gives way to the default",
            "KILN_NVRTC_LIBRARY=none " + variable("KILN_CACHE", overlay));
  tally(26, 1, "launches without an NVRTC nor a near record's machine code");
}

TEST_CASE("child: another NVRTC serves what the first one made" * doctest::skip()) {
  const Machine machine;
  const fs::path overlay = std::getenv("KILN_CACHE");
  check_served(e2e::options(overlay, MissPolicy::error), machine, 0, 0);
  const Engine engine(e2e::options(overlay, MissPolicy::error));
  const ScaleCall call(engine, 64, 128);
  const Explanation explained = engine.explain(call.op, call.problem);
  CHECK(explained.nvrtc == jit::compiler_identity());
  CHECK(explained.compiler != explained.nvrtc);
}

TEST_CASE("fault 26: a library that is another NVRTC, though of the same version, is another compiler") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  run_child("child: another NVRTC serves what the first one made",
            under_faulty_nvrtc() + variable("KILN_CACHE", overlay));
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
