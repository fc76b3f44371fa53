// kiln cache prune, compact and export: which rows go, and which come along.
#include <fmt/format.h>
#include <set>

#include "cli/prune_rule.hpp"
#include "command.hpp"
#include "sample_op.hpp"
#include "store/key_files.hpp"
#include "tuned_rows.hpp"

using namespace kiln;
using namespace kiln::testing;
using store::Access;
using store::File;

namespace {

std::int64_t records_in(const std::string& path) { return File::open(path, Access::read_only)->stats().records; }
std::int64_t cubins_in(const std::string& path) { return File::open(path, Access::read_only)->stats().cubins; }

bool holds(const std::string& path, const manifest::Digest& cubin) {
  return File::open(path, Access::read_only)->find_cubin(cubin).has_value();
}

}  // namespace

TEST_CASE("--stale takes what the present sources have outgrown, and nothing else") {
  const Command command;
  const std::string path = command.path("a.kiln");
  const TunedRows present = tuned({"rows=512", "cols=4096"});
  TunedRows stale = tuned({"rows=1024", "cols=4096"}), gone = tuned({"rows=2048", "cols=4096"}),
            unknown = tuned({"rows=4096", "cols=4096"});
  stale.record.choices[0].source_digest = std::string(64, 'b');
  gone.record.key = "rms_norm@0" + gone.record.key.substr(10);  // of an earlier revision
  gone.record.revision = 0;
  unknown.record.key = "unheard_of" + unknown.record.key.substr(8);
  unknown.record.op = "unheard_of";
  store::CubinRow outgrown = present.cubins[0], unsaid = present.cubins[0], stranger = present.cubins[0];
  outgrown.key[0] ^= std::byte{1};
  outgrown.source_digest = std::string(64, 'b');
  unsaid.key[0] ^= std::byte{2};
  unsaid.source_digest.clear();
  stranger.key[0] ^= std::byte{3};
  stranger.op = "unheard_of";
  stranger.source_digest = std::string(64, 'b');
  {
    const auto file = File::open(path, Access::read_write);
    put(*file, present);
    for (const TunedRows* each : {&stale, &gone, &unknown}) file->put(each->record, nullptr);
    for (const store::CubinRow& each : {outgrown, unsaid, stranger}) file->put_cubin(each);
  }
  const Ran dry = command.run("cache prune " + path + " --stale --dry-run");
  CHECK(dry.status == 0);
  CHECK(dry.output.find("2 records, 0 candidates and 1 cubin would be deleted") != std::string::npos);
  CHECK(records_in(path) == 4);
  const Ran ran = command.run("cache prune " + path + " --stale");
  CHECK_MESSAGE(ran.status == 0, ran.errors);
  CHECK(ran.output.find(stale.record.key) != std::string::npos);
  CHECK(records_in(path) == 2);
  for (const store::CubinRow& each : present.cubins) CHECK(holds(path, each.key));
  CHECK_FALSE(holds(path, outgrown.key));
  CHECK(holds(path, unsaid.key));
  CHECK(holds(path, stranger.key));
  CHECK(command.run("--json cache prune --stale " + path).output.find("\"records\":0") != std::string::npos);
}

TEST_CASE("--stale leaves code of the present sources that no record asks for, as a prewarm makes for fallbacks") {
  const Command command;
  const std::string path = command.path("a.kiln");
  const manifest::Catalogue ops{std::span<const std::filesystem::path>()};
  const manifest::Op& op = cli::find_op(ops, "rms_norm");
  const Problem bucket =
      manifest::bucket_of(op, cli::parse_problem(op, std::vector<std::string>{"rows=512", "cols=4096"}));
  const manifest::DeviceFacts device = manifest::DeviceFacts::from_device_class(h200).value();
  std::vector<jit::Specialisation> all;
  for (const manifest::Implementation& each : op.implementations) {
    if (manifest::why_not_eligible({op, device}, each, bucket)) continue;
    for (const manifest::Config& config : manifest::search_space({op, device}, each, bucket))
      all.push_back(jit::specialise(op, each, manifest::Variant{&each, config}.frame({op, device}, bucket), "sm_90a"));
  }
  REQUIRE(all.size() > 2);
  {
    const auto file = File::open(path, Access::read_write);
    for (const store::CubinRow& each : cubins_for(all)) file->put_cubin(each);
  }
  const auto before = cubins_in(path);
  const Ran ran = command.run("cache prune " + path + " --stale");
  CHECK_MESSAGE(ran.status == 0, ran.errors);
  CHECK(cubins_in(path) == before);
}

TEST_CASE("what removes signatures says so, and how to sign again") {
  const Command command;
  const std::string path = command.path("a.kiln"), out = command.path("out.kiln");
  {
    const auto file = File::open(path, Access::read_write);
    put(*file, tuned({"rows=512", "cols=4096"}));
    put(*file, tuned({"rows=1024", "cols=4096"}));
  }
  const store::Folder folder;
  const std::string sign = "cache sign " + path + " --key " + store::make_keys(folder, "release").secret.string();
  REQUIRE(command.run(sign).status == 0);
  const std::string said = "is not signed: 1 signature of its former content or of its inputs cannot be kept";
  CHECK(command.run("cache merge " + path + " -o " + out).errors.find(out + " " + said) != std::string::npos);
  CHECK(command.run("cache export " + path + " --replace -o " + out).errors.find(out + " " + said) !=
        std::string::npos);
  CHECK(command.run("cache merge " + out + " --replace -o " + out).errors.empty());
  const std::string prune = "cache prune " + path + " --max-size ";
  CHECK(command.run(prune + "1GB").errors.empty());
  const Ran pruned = command.run("cache prune " + path + " --op rms_norm");
  CHECK(pruned.errors.find(path + " " + said) != std::string::npos);
  CHECK(pruned.errors.find("kiln cache sign " + path + " --key KEY.pem") != std::string::npos);
}

TEST_CASE("a pre-warm over a signed file says that the signature is gone") {
  const Command command;
  const std::string base = command.path("base.kiln"), out = command.path("out.kiln");
  put(*File::open(base, Access::read_write), tuned({"rows=512", "cols=4096"}));
  const std::string prewarm =
      "prewarm " + command.path("w.toml", "[[workload]]\nop = \"rms_norm\"\naxes = { rows = 512, cols = 4096 }\n") +
      " --arch sm_90a --base " + base + " -o " + out;
  const Ran first = command.run("-q " + prewarm);
  REQUIRE_MESSAGE(first.status == 0, first.errors);
  const store::Folder folder;
  REQUIRE(command.run("cache sign " + out + " --key " + store::make_keys(folder, "release").secret.string()).status ==
          0);
  CHECK(command.run(prewarm).errors.find(out + " is not signed: 1 signature") != std::string::npos);
}

TEST_CASE("--stale takes a record when one of its configs was tuned from other sources, and judges what came since") {
  const Command command;
  const std::string path = command.path("a.kiln");
  const auto file = File::open(path, Access::read_write);
  TunedRows half = tuned({"rows=512", "cols=4096"});
  store::Choice low = half.record.choices[0];
  low.sizes = "rows=257..300";
  low.source_digest = std::string(64, 'b');
  half.record.choices[0].sizes = "rows=301..512";
  half.record.choices.insert(half.record.choices.begin(), low);
  put(*file, half);
  const auto chosen = cli::choose_rows({}, {.stale = true}, *file);
  put(*File::open(path, Access::read_write), tuned({"rows=1024", "cols=4096"}));
  CHECK(file->prune(chosen->rule).records == 1);
  CHECK(chosen->records == std::vector{half.record.key});
  CHECK(file->find_record(tuned({"rows=1024", "cols=4096"}).record.key));
}

TEST_CASE("conditions narrow each other, and a device class takes only code that no other class runs") {
  const Command command;
  const std::string path = command.path("a.kiln");
  const TunedRows here = tuned({"rows=512", "cols=4096"}), there = tuned({"rows=512", "cols=4096"}, h100);
  store::CubinRow old = here.cubins[0];
  old.key[0] ^= std::byte{1};
  old.arch = "sm_80";
  {
    const auto file = File::open(path, Access::read_write);
    put(*file, here);
    put(*file, there);
    file->put_cubin(old);
  }
  const auto cubins = cubins_in(path);
  CHECK(command.run("cache prune " + path + " --stale --device-class " + h100).output.find("0 records") !=
        std::string::npos);
  CHECK(command.run("cache prune " + path + " --device-class " + h100).status == 0);
  CHECK(records_in(path) == 1);
  CHECK(cubins_in(path) == cubins);
  CHECK(command.run("cache prune " + path + " --device-class " + h200).status == 0);
  CHECK(cubins_in(path) == 1);
  CHECK(holds(path, old.key));
}

TEST_CASE("what was pruned may be pruned again: nothing goes, and that is good") {
  const Command command;
  const std::string path = command.path("a.kiln");
  const TunedRows rows = tuned({"rows=512", "cols=4096"});
  for (const std::string& what : {std::string("--op rms_norm"), "--device-class " + rows.record.device_class,
                                  std::string("--unused 0d"), std::string("--max-size 70kB")}) {
    put(*File::open(path, Access::read_write), rows);
    for (int run = 0; run < 2; ++run) {
      const Ran ran = command.run("cache prune " + path + " " + what);
      CAPTURE(what);
      CHECK_MESSAGE(ran.status == 0, ran.errors);
    }
  }
  const std::string unknown = "cache prune " + path + " --op my_own_operation";
  check_refused(command.run(unknown), 0,
                "kiln: the file holds no row of an op 'my_own_operation', and no op of this name is loaded");
  CHECK(command.run("-q " + unknown).errors.empty());
}

TEST_CASE("words that choose nothing, or that do not parse, are refused and change nothing") {
  const Command command;
  const std::string path = command.path("a.kiln");
  put(*File::open(path, Access::read_write), tuned({"rows=512", "cols=4096"}));
  const std::string prune = "cache prune " + path + " ";
  check_refused(command.run("cache prune " + path), 2, "nothing says what to delete");
  check_refused(command.run(prune + "--unused soon"), 2,
                "--unused is 'soon', expected a number and its unit, such as 90d");
  check_refused(command.run(prune + "--unused -1d"), 2, "expected a number and its unit, such as 90d");
  check_refused(command.run(prune + "--max-size 5XB"), 2,
                "--max-size is '5XB', expected a number and its unit, such as 500MB");
  check_refused(command.run(prune + "--op rmsnorm"), 2, "no row of an op 'rmsnorm' (did you mean 'rms_norm'?)");
  check_refused(command.run(prune + "--device-class H201"), 2, "no record for the device class 'H201'");
  check_refused(command.run(prune + "--other-devices"), 3, "no GPU is present");
  check_refused(command.run("cache prune --stale"), 2, "overlay.kiln does not exist");
  check_refused(command.run("cache compact " + command.path("a.jsonl", "\n")), 2, "is text");
  CHECK(records_in(path) == 1);
}

TEST_CASE("a file that counts no use is not emptied for being unused") {
  const Command command;
  const std::string path = command.path("a.kiln"), shipped = command.path("shipped.kiln");
  put(*File::open(path, Access::read_write), tuned({"rows=512", "cols=4096"}));
  CHECK(command.run("cache export " + path + " -o " + shipped).status == 0);
  check_refused(command.run("cache prune --unused 1d " + shipped), 2, "it never was an overlay");
  CHECK(command.run("cache prune --unused 1d " + path).output.find("0 records") != std::string::npos);
  CHECK(records_in(path) == 1);
}

TEST_CASE("pruning gives the bytes back unless told not to, and compacting does then") {
  const Command command;
  const std::string path = command.path("a.kiln");
  {
    const auto file = File::open(path, Access::read_write);
    for (const char* rows : {"rows=64", "rows=128", "rows=256", "rows=512"}) put(*file, tuned({rows, "cols=4096"}));
    auto large = tuned({"rows=64", "cols=4096"}).cubins[0];
    std::uint32_t state = 1;
    large.key[0] ^= std::byte{1};
    large.image.resize(500000);
    for (std::byte& each : large.image) each = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
    file->put_cubin(large);
  }
  const auto before = std::filesystem::file_size(path);
  CHECK(command.run("cache prune --no-compact --max-size 200kB " + path).status == 0);
  CHECK(std::filesystem::file_size(path) == before);
  CHECK(records_in(path) == 4);
  const Ran compacted = command.run("--json cache compact " + path);
  CHECK(compacted.output.find("\"bytes_before\":" + std::to_string(before)) != std::string::npos);
  CHECK(std::filesystem::file_size(path) < 200000);
}

TEST_CASE("machine code that a replaced file had and the new one lacks is named") {
  const Command command;
  const std::string path = command.path("a.kiln"), out = command.path("out.kiln");
  put(*store::File::open(path, store::Access::read_write), tuned({"rows=512", "cols=4096"}));
  REQUIRE(command.run("cache export " + path + " -o " + out).status == 0);
  const std::int64_t cubins = cubins_in(out);
  REQUIRE(cubins > 1);
  CHECK(command.run("cache export " + path + " -o " + out).errors.empty());
  const std::string note =
      fmt::format("{} lacks {} cubins of its former content; what is needed is compiled", out, cubins);
  const std::string bare = command.path("bare.kiln");
  const Ran without = command.run("cache export --no-cubins " + path + " -o " + bare);
  CHECK(without.errors.empty());
  const Ran merged = command.run("cache merge " + bare + " -o " + out);
  CHECK_MESSAGE(merged.errors.find(note) != std::string::npos, merged.errors);
  REQUIRE(command.run("cache export " + path + " -o " + out).status == 0);
  const Ran exported = command.run("--json cache export --no-cubins " + path + " -o " + out);
  CHECK_MESSAGE(exported.errors.find(note) != std::string::npos, exported.errors);
  CHECK(exported.output.find(fmt::format("\"lost_cubins\":{}", cubins)) != std::string::npos);
}

TEST_CASE("an export for a workload holds its buckets' records and the machine code that these need") {
  const Command command;
  const std::string path = command.path("a.kiln"), out = command.path("out.kiln");
  const TunedRows wanted = tuned({"rows=512", "cols=4096"}), other = tuned({"rows=512", "cols=8192", "dtype=f32"});
  {
    const auto file = File::open(path, Access::read_write);
    put(*file, other);
    put(*file, wanted);
  }
  const std::string workload =
      command.path("w.toml", "[[workload]]\nop = \"rms_norm\"\naxes = { rows = \"300..512\", cols = 4096 }\n");
  const Ran ran = command.run("cache export " + path + " --workload " + workload + " -o " + out);
  CHECK_MESSAGE(ran.status == 0, ran.errors);
  CHECK(records_in(out) == 1);
  std::set<manifest::Digest> distinct;
  for (const store::CubinRow& each : wanted.cubins) distinct.insert(each.key);
  CHECK(cubins_in(out) == static_cast<std::int64_t>(distinct.size()));
  for (const store::CubinRow& each : wanted.cubins) CHECK(holds(out, each.key));
  CHECK_FALSE(holds(out, other.cubins[0].key));
  CHECK(command.run("cache export --no-cubins --replace " + path + " --workload " + workload + " -o " + out).status ==
        0);
  CHECK(cubins_in(out) == 0);

  const std::string larger =
      command.path("l.toml", "[[workload]]\nop = \"rms_norm\"\naxes = { rows = \"300..1024\", cols = 4096 }\n");
  const Ran lacking = command.run("cache export --text " + path + " --workload " + larger);
  CHECK(lacking.status == 1);
  CHECK(lacking.errors.find("1 of 2 buckets") != std::string::npos);
  CHECK(command.run("-q cache export --text " + path + " --workload " + larger).errors == lacking.errors);
  CHECK(std::count(lacking.output.begin(), lacking.output.end(), '\n') == 1);
}
