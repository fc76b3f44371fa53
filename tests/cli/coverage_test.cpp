// kiln coverage, explain and a dry replay: what is said of files without records, without machine code, or not trusted for it.
#include <unistd.h>

#include <limits>

#include "tuned_files.hpp"

using namespace kiln::testing;
TEST_CASE("coverage counts machine code, names the file that has it, and can require it") {
  const Command command;
  const std::string bare = tuned_file(command, "bare.kiln", false), whole = tuned_file(command, "whole.kiln", true);
  const std::string asked = "coverage " + workload_of(command, "512") + " --require 100 --require-machine-code --base ";
  const Ran without = command.run(asked + bare);
  CHECK(without.status == 1);
  CHECK(says(without.output, "base, no machine code"));
  CHECK(says(without.output, "the bucket has no machine code in the files\n"));
  CHECK(says(without.output, "next: compile what is missing, without a GPU, then add --base FILE.kiln\n"));
  CHECK(says(without.output, " --device-class H200 --base " + bare + " -o FILE.kiln\n"));
  CHECK(command.run("coverage " + command.path("w.toml") + " --require 100 --base " + bare).status == 0);
  const Ran with = command.run(asked + whole);
  CHECK_MESSAGE(with.status == 0, with.output);
  CHECK(says(with.output, "the bucket has machine code in the files: from base " + whole));
  CHECK_FALSE(says(with.output, "next: "));
  CHECK(says(command.run("--json " + asked + whole).output, "\"with_machine_code\":1"));
}

TEST_CASE("bare names are those of files in share/kiln beside the command, or in that of the folder above") {
  const Command files;
  std::filesystem::create_directories(files.path("bin"));
  std::filesystem::create_directories(files.path("share/kiln/workloads"));
  tuned_file(files, "share/kiln/h200.kiln", false);
  std::filesystem::rename(workload_of(files, "512"), files.path("share/kiln/workloads/w.toml"));
  std::filesystem::copy_file(KILN_COMMAND, files.path("kiln"));
  const std::string asked = "coverage w.toml --base h200.kiln --device-class H200 --require 100",
                    elsewhere = "cd / && ";
  const Ran beside = Command(files.path("kiln")).run(asked, elsewhere);
  CHECK_MESSAGE(beside.status == 0, beside.errors);
  CHECK(says(Command(files.path("kiln")).run("doctor").output, "installed are h200.kiln"));
  std::filesystem::rename(files.path("kiln"), files.path("bin/kiln"));
  const Ran below = Command(files.path("bin/kiln")).run(asked, elsewhere);
  CHECK_MESSAGE(below.status == 0, below.errors);
}

TEST_CASE(
    "records and machine code stored over the text of the present sources are current, those of other text are not") {
  const Command command;
  const TunedRows rows = tuned({"rows=512", "cols=4096", "dtype=bf16"});
  const std::string same = command.path("same.kiln"), other = command.path("other.kiln");
  put(*store::File::open(same, store::Access::read_write), stored_over_text(rows));
  put(*store::File::open(other, store::Access::read_write), stored_over_text(rows, ";\n"));
  const std::string coverage = "coverage " + workload_of(command, "512") + " --require-machine-code --base ";
  const std::string explain = "explain rms_norm rows=300 cols=4096 dtype=bf16 --device-class H200 --base ";
  const Ran covered = command.run("--json " + coverage + same), missed = command.run("--json " + coverage + other);
  CHECK_MESSAGE((covered.status == 0 && says(covered.output, "\"stale\":0,")), covered.output);
  CHECK_MESSAGE((missed.status == 1 && says(missed.output, "\"stale\":1,")), missed.output);
  CHECK(says(command.run(explain + same).output, "base " + same + " has it: no compile"));
  CHECK(says(command.run(explain + other).output, "no file has it"));
  CHECK(says(command.run("cache prune --stale --dry-run " + same).output, ": 0 records, 0 candidates and 0 cubins "));
  const std::string pruned = command.run("cache prune --stale --dry-run " + other).output;
  CHECK_MESSAGE(says(pruned, ": 1 record, 0 candidates and "), pruned);
  CHECK_FALSE(says(pruned, " 0 cubins "));
  // What is copied out of it is found again.
  const std::string copy = command.path("copy.kiln");
  CHECK(command.run("cache export " + same + " --workload " + command.path("w.toml") + " -o " + copy).status == 0);
  CHECK(command.run(coverage + copy).status == 0);
}

TEST_CASE("buckets of one shape without a record are one line with their sizes and number") {
  const Command command;
  const std::string output =
      command.run("coverage " + workload_of(command, "\"1..4096\"") + " --device-class H200").output;
  CHECK_MESSAGE(says(output, "rows=1..4096 cols=4096 dtype=bf16, 13 buckets"), output);
  CHECK_MESSAGE(says(output, "100.0 %"), output);
  CHECK_FALSE(says(output, "rows=512 "));
  CHECK(says(command.run("--json coverage " + command.path("w.toml") + " --device-class H200").output, "rows=512 "));
}

TEST_CASE("buckets of powers of two are folded on the axes that have them for the types and choices of the bucket") {
  const Command command;
  const auto covered = [&](const std::string& entry) {
    const std::string workload = command.path("w.toml", "[[workload]]\n" + entry);
    return command.run("coverage " + workload + " --device-class H200").output;
  };
  const std::string gemm = covered("op = \"gemm\"\naxes = { m = \"1..16384\", n = 4096, k = [4096, 14336] }\n");
  CHECK_MESSAGE(says(gemm, "m=1..16384 n=4096 k=4096 dtype=bf16, 15 buckets"), gemm);
  CHECK(says(gemm, "m=1..16384 n=4096 k=14336 dtype=bf16, 15 buckets"));
  CHECK_FALSE(says(gemm, "k=4096..14336"));
  const std::string gradient =
      covered("op = \"gemm\"\naxes = { m = [64, 128], n = 4096, k = \"1..8\" }\ntypes = { layout = \"tn\" }\n");
  CHECK_MESSAGE(says(gradient, "m=128 n=4096 k=1..8 dtype=bf16 layout=tn, 4 buckets"), gradient);
  const std::string decode = covered(
      "op = \"attention_decode\"\naxes = { batch = \"1..4\", keys = \"1024..4096\", queries = 1, heads = 32, "
      "key_heads = 8, head_dim = 128, value_dim = 128 }\n");
  CHECK_MESSAGE(says(decode, "batch=1..4 keys=1024..4096 queries=1 heads=32 "), decode);
  CHECK(says(decode, ", 9 buckets"));
}

TEST_CASE("coverage of a workload counts buckets, and says which need no machine code") {
  const Command command;
  const std::string base = command.path("a.kiln");
  const auto file = store::File::open(base, store::Access::read_write);
  put(*file, tuned({"rows=512", "cols=4096", "dtype=bf16"}));
  TunedRows library = tuned({"rows=64", "cols=4096", "dtype=bf16"});
  const manifest::Catalogue ops{std::span<const std::filesystem::path>()};
  const manifest::Op& gemm = cli::find_op(ops, "gemm");
  const Problem bucket = cli::parse_problem(gemm, std::vector<std::string>{"m=16", "n=4096", "k=4096"});
  library.record.key =
      manifest::Bucket({gemm, manifest::DeviceFacts::from_device_class(h200).value(), Regime::cold_l2}, bucket).key();
  library.record.op = gemm.name;
  library.record.revision = gemm.revision;
  library.record.bucket = manifest::to_string(gemm, bucket);
  store::Choice& choice = library.record.choices.front();
  choice.sizes = manifest::to_string(gemm, manifest::whole_of(gemm, bucket));
  choice.implementation = "cublaslt";
  choice.config = "algorithm=66 tile=405 stages=35 splits=1 reduction=0 swizzle=0 custom=1 inner=0 cluster=3 extra=1";
  file->put_all({&library.record, 1}, {});
  const std::string workload = command.path("w.toml",
                                            "[[workload]]\nop = \"rms_norm\"\naxes = { rows = 512, cols = 4096 }\n"
                                            "[[workload]]\nop = \"gemm\"\naxes = { m = 16, n = 4096, k = 4096 }\n");
  const std::string text = command.run("coverage " + workload + " --base " + base).output;
  CHECK_MESSAGE(says(text, "100.0 % of buckets and 100.0 % of their expected time would be hits"), text);
  CHECK_FALSE(says(text, "% of launches"));
  CHECK_MESSAGE(says(text, "1 of these 2 has machine code in the files: 1 from base " + base +
                               "; 1 needs none: a library serves it\n"),
                text);
}

TEST_CASE("prewarm lists what it found no record for in the same way") {
  const Command command;
  const Ran ran =
      command.run("prewarm " + workload_of(command, "\"1..4096\"") +
                  " --device-class sm_75/mp72/l2_6291456/smem_65536/bus_384 -o " + command.path("out.kiln"));
  CHECK(ran.status == 1);
  CHECK_MESSAGE(says(ran.output, "Without a record: 13 of 13 buckets"), ran.output);
  CHECK_MESSAGE(says(ran.output, "rows=1..4096 cols=4096 dtype=bf16, 13 buckets"), ran.output);
}

TEST_CASE("machine code of all records of a device class needs no workload") {
  const Command command;
  const std::string bare = tuned_file(command, "bare.kiln", false), whole = tuned_file(command, "whole.kiln", true);
  const std::string all = command.path("all.kiln");
  TunedRows elsewhere = tuned({"rows=64", "cols=4096", "dtype=bf16"}, h100);
  TunedRows hot = tuned({"rows=128", "cols=4096", "dtype=bf16"});
  hot.record.regime = manifest::to_string(Regime::hot_l2);
  const manifest::DeviceFacts device = manifest::DeviceFacts::from_device_class(h200).value();
  hot.record.key = manifest::Bucket({rms_norm(), device, Regime::hot_l2},
                                    manifest::parse_bucket(rms_norm(), hot.record.bucket).value())
                       .key();
  for (const std::string& each :
       {bare, whole}) {  // records of another device and of warm caches, which no launch asks for
    const auto file = store::File::open(each, store::Access::read_write);
    file->put_all({&elsewhere.record, 1}, {});
    file->put_all({&hot.record, 1}, {});
  }
  const std::string asked = " --from-records --device-class H200 --base ";
  const Ran without = command.run("coverage --require-machine-code" + asked + bare);
  CHECK(without.status == 1);
  CHECK_MESSAGE(says(without.output, "of the records, each bucket launched once"), without.output);
  CHECK_MESSAGE(says(without.output, "kiln prewarm" + asked + bare + " -o FILE.kiln\n"), without.output);
  const Ran warmed = command.run("prewarm" + asked + whole + " -o " + all);
  CHECK_MESSAGE(warmed.status == 0, warmed.errors);
  CHECK_MESSAGE(says(warmed.output, "1, 1 with a record"), warmed.output);
  CHECK(command.run("coverage --require-machine-code --overlay '' " + asked + all).status == 0);
  check_refused(command.run("prewarm --from-records --device-class H100 --base " + bare + " -o " + all), 2,
                "have no record of sm_90/mp132/l2_52428800/smem_232448/bus_5120; name its file with --base");
  check_refused(command.run("prewarm " + workload_of(command, "512") + asked + bare + " -o " + all), 2,
                "give only one");
}

TEST_CASE("coverage says that the overlay supplies what a base lacks") {
  const Command command;
  const std::string bare = tuned_file(command, "bare.kiln", false);
  tuned_file(command, "overlay.kiln", true);
  const std::string asked = "coverage " + workload_of(command, "512") + " --require-machine-code --base " + bare;
  const Ran hidden = command.run(asked);
  CHECK(hidden.status == 0);
  CHECK(says(hidden.output, "files: from overlay "));
  CHECK(says(hidden.output, "--overlay \"\" leaves the overlay out"));
  const Ran alone = command.run(asked + " --overlay ''");
  CHECK(alone.status == 1);
  CHECK(says(alone.output, " --base " + bare + " --overlay \"\" -o FILE.kiln"));  // the next step leaves it out too
}

TEST_CASE("the device class may be given by name, in coverage as in prune and export") {
  const Command command;
  const std::string base = tuned_file(command, "a.kiln", true);
  const std::string asked =
      "coverage " + workload_of(command, "512") + " --base " + base + " --require 100 --device-class ";
  CHECK(command.run(asked + "H200").status == 0);
  CHECK(command.run(asked + "h200").status == 0);
  const Ran other = command.run(asked + "H100");
  CHECK(other.status == 1);
  CHECK(says(other.output, "sm_90/mp132/l2_52428800/smem_232448/bus_5120"));
  CHECK(command.run("cache export " + base + " --device-class H200 -o " + command.path("out.kiln")).status == 0);
  CHECK(says(command.run("cache prune " + base + " --device-class H200").output, ": 1 record, "));
}

TEST_CASE("explain says which file has the machine code, why a file may not supply it, and what a launch does then") {
  const Command command;
  const std::string base = tuned_file(command, "a.kiln", true);
  const std::string asked = "explain rms_norm rows=300 cols=4096 dtype=bf16 --device-class H200 --base " + base;
  CHECK(says(command.run(asked).output, "base " + base + " has it: no compile"));
  const std::string refused = command.run(asked + " --trust signed").output;
  CHECK_MESSAGE(says(refused, "base " + base + " has it and may not supply it ("), refused);
  CHECK(says(refused, "there is no NVRTC here to compile it: such a launch fails"));
  CHECK(
      says(command.run("explain rms_norm rows=300 cols=4096 dtype=bf16").output, "no file has it; there is no NVRTC"));
}

TEST_CASE("explain says what a file holds in place of the bucket's record") {
  const Command command;
  const std::string base = tuned_file(command, "a.kiln", true);
  const auto explained = [&](const std::string& words) {
    return command.run("explain " + words + " --base " + base).output;
  };
  const std::string sizes = explained("rms_norm rows=9 cols=4096 dtype=bf16 --device-class H200");
  CHECK_MESSAGE(says(sizes, "no record of this bucket, 1 of other rows (512)"), sizes);
  CHECK(says(sizes, "absent: no file has a record of this bucket\n"));
  CHECK(says(explained("rms_norm rows=9 cols=4096 dtype=f32 --device-class H200"),
             "no record of these types and choices, 1 of others"));
  CHECK(says(explained("rms_norm rows=9 cols=4096 dtype=bf16 --device-class H100"),
             "no record for this device class, 1 for others"));
  CHECK(says(explained("softmax rows=9 cols=4096 dtype=bf16 --device-class H200"), "no record of softmax"));
  const std::string foreign = command.path("foreign.kiln", "not a database, certainly not one of kiln's");
  CHECK(says(explained("rms_norm rows=9 cols=4096 dtype=bf16 --device-class H200 --base " + foreign),
             "absent: no file has a record of this bucket; 1 file not opened"));
}

TEST_CASE("a dry replay names what a miss does under its policy") {
  const Command command;
  const std::string asked = "replay --dry-run --device-class H200 " +
                            command.path("t.trace", "rms_norm rows=137 cols=4096 dtype=bf16\n") + " --policy ";
  const std::string refused = command.run(asked + "error").output;
  CHECK_MESSAGE(says(refused, "rms_norm rows=256 cols=4096 dtype=bf16: no record: an error\n"), refused);
  CHECK_FALSE(says(refused, "served by"));
  CHECK(says(command.run(asked + "tune").output, "no record: would tune\n"));
  CHECK(says(command.run(asked + "nearest").output, "no record, served by default, no machine code\n"));
  CHECK(says(command.run("--json " + asked + "error").output, "\"missing_problems\":1"));
}

TEST_CASE("a dry replay lists in JSON the buckets that are not ready") {
  const Command command;
  const std::string base = tuned_file(command, "base.kiln", false),
                    trace =
                        command.path("t.trace", "rms_norm rows=512 cols=4096 dtype=bf16\nrms_norm rows=1 cols=4096\n");
  const std::string json =
      command
          .run("--json replay --dry-run --policy error --device-class H200 --overlay '' --base " + base + " " + trace)
          .output;
  CHECK_MESSAGE(says(json, "\"not_ready\":[{\"op\":\"rms_norm\",\"bucket\":\"rows="), json);
  CHECK_MESSAGE(says(json, "\"answer\":\"no record: an error\",\"problems\":1}"), json);
  CHECK_MESSAGE(says(json, "\"answer\":\"a record, no machine code\",\"problems\":1}"), json);
}

TEST_CASE("a dry replay counts a bucket without a record once, and machine code of records alone") {
  const Command command;
  const std::string bare = tuned_file(command, "bare.kiln", false);
  const std::string trace = command.path("t.trace", "rms_norm rows=9 cols=4096\nrms_norm rows=300 cols=4096\n");
  for (const char* policy : {"error", "nearest"}) {
    const std::string asked = "replay --dry-run " + trace + " --base " + bare + " --policy " + policy;
    CHECK(says(command.run("--json " + asked).output, "\"buckets_without_cubin\":1,"));
    const std::string told = command.run(asked).output;
    CHECK_MESSAGE(says(told, "buckets without a record                     1\n"), told);
    CHECK(says(told, "buckets with a record, without machine code  1\n"));
  }
}

TEST_CASE("launches of ops that are not loaded are told, count as misses of mean time, and make no file") {
  const Command command;
  const std::string base = tuned_file(command, "base.kiln", true), counts = command.path("counts.kiln"),
                    workload = command.path("counted.toml"), asked = " --device-class H200 --overlay '' --base " + base;
  const auto count = [&](std::vector<store::HistogramRow> rows) {
    std::filesystem::remove(counts);
    store::File::open(counts, store::Access::read_write)->add_to_histogram(rows);
  };
  const store::HistogramRow known{"rms_norm", "rows=300 cols=4096 dtype=bf16 residual=none quantise=none", 96};
  const std::string coverage = "coverage --from-histogram " + counts + asked + " --require 100 --by time",
                    prewarm = "prewarm --from-histogram " + counts + asked + " -o " + command.path("out.kiln"),
                    write = "workload --from-histogram " + counts + " -o " + workload;
  count({known});
  CHECK(command.run(coverage).status == 0);
  CHECK(command.run(write).status == 0);
  count({known, {"my_norm", "rows=1", 32}});
  const Ran covered = command.run(coverage);
  CHECK(covered.status == 1);
  CHECK_MESSAGE(says(covered.output, "75.0 % of launches and 75.0 % of their expected time would be hits"),
                covered.output);
  CHECK(says(covered.output, "about 32 launches are of ops or sizes that no loaded op has, and count as misses"));
  CHECK(says(command.run("--json " + prewarm).output, "{\"event\":\"unknown\",\"launches\":32}"));
  CHECK(says(command.run(prewarm).output, "that no loaded op has, and nothing is pre-warmed for them\n"));
  CHECK(command.run(write).status == 0);
  count({{"my_norm", "rows=1", 32}});
  const std::string kept = command.run("coverage " + workload + asked).output;
  const std::string why = "counts.kiln counts only launches of ops or sizes that no loaded op has, about 32; ";
  check_refused(command.run(write), 2, why);
  check_refused(command.run(prewarm), 2, why);
  CHECK(command.run("coverage " + workload + asked).output == kept);
}

TEST_CASE("a share that one launch of many keeps below 100 % is not rounded up, and the unmet requirement is named") {
  const Command command;
  const std::string base = tuned_file(command, "base.kiln", false), counts = command.path("counts.kiln"),
                    asked = "coverage --device-class H200 --overlay '' --base " + base + " --from-histogram " + counts;
  const std::string known = "rows=300 cols=4096 dtype=bf16 residual=none quantise=none";
  store::File::open(counts, store::Access::read_write)
      ->add_to_histogram({{"rms_norm", known, 99999}, {"my_norm", "rows=1", 1}});
  const Ran ran = command.run(asked + " --require 100");
  CHECK(ran.status == 1);
  CHECK_MESSAGE(says(ran.output, "99.999 % of launches"), ran.output);
  CHECK_MESSAGE(says(ran.errors, "the requirement is not met: 99.999 % by launches, and --require 100 is asked for"),
                ran.errors);
  CHECK(command.run(asked + " --require 99.99").errors.empty());
  CHECK(says(command.run(asked + " --require-machine-code").errors,
             "the requirement is not met: 1 bucket without machine code, and --require-machine-code is asked for"));
  const Ran quiet = command.run("-q " + asked + " --require 100"),
            unmet = command.run("--json " + asked + " --require 100");
  check_refused(quiet, 1, "the requirement is not met: ");
  check_refused(unmet, 1,
                "{\"error\":{\"kind\":\"unmet\",\"message\":\"the requirement is not met: 99.999 % by launches");
  CHECK_MESSAGE(says(unmet.output, "\"unmet\":\"the requirement is not met: 99.999 %"), unmet.output);
  const std::string json = command.run("--json " + asked).output;
  CHECK_MESSAGE(says(json, "\"unmet\":null,"), json);
  CHECK_MESSAGE(says(json, "\"launch_share\":0.99999,"), json);
  CHECK_MESSAGE(says(json, "\"launch_coverage\":0.99999,"), json);
}

TEST_CASE("counts past 64 bits are the greatest number, and none is negative") {
  const Command command;
  const std::string counts = command.path("counts.kiln"),
                    asked = "--json coverage --device-class H200 --overlay '' --from-histogram " + counts;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::vector<store::HistogramRow> rows;
  for (const char* size : {"5", "6", "500"})
    rows.push_back(
        {"rms_norm", "rows=" + std::string(size) + " cols=4096 dtype=bf16 residual=none quantise=none", most});
  rows.push_back({"my_norm", "rows=1", most});
  rows.push_back({"my_norm", "rows=2", most});
  store::File::open(counts, store::Access::read_write)->add_to_histogram(rows);
  const std::string json = command.run(asked).output;
  CHECK_MESSAGE(says(json, "\"launches\":9223372036854775807,\"unknown_launches\":9223372036854775807,"), json);
  CHECK_FALSE(says(json, ":-"));
  CHECK(command.run("workload --from-histogram " + counts).output.find("-") != 0);
}

TEST_CASE("an overlay that may not be written is read: its counts, and its export") {
  const Command command;
  const std::string overlay = tuned_file(command, "overlay.kiln", false);
  store::File::open(overlay, store::Access::read_write)
      ->add_to_histogram({{"rms_norm", "rows=300 cols=4096 dtype=bf16 residual=none quantise=none", 3}});
  std::filesystem::permissions(overlay, std::filesystem::perms(0400));
  // Root may write whatever the permissions are.
  const std::string before =
      ::geteuid() == 0 ? "setpriv --bounding-set=-dac_override,-dac_read_search env " : std::string();
  if (std::system((before + "true").c_str()) != 0) {
    MESSAGE("Skipped: setpriv takes no rights away here.");
    return;
  }
  const Ran covered = command.run("coverage --from-histogram --device-class H200 --require 100", before);
  CHECK_MESSAGE(covered.status == 0, covered.errors);
  CHECK_MESSAGE(says(covered.errors, "cannot be written"), covered.errors);
  const Ran written = command.run("workload --from-histogram", before);
  CHECK_MESSAGE(says(written.output, "rows = 512"), written.output);
  const Ran exported = command.run("cache export --text", before);
  CHECK_MESSAGE((exported.status == 0 && says(exported.output, "\"op\":\"rms_norm\"")), exported.errors);
  CHECK(command.run("cache export -o " + command.path("out.kiln"), before).status == 0);
  std::filesystem::permissions(overlay, std::filesystem::perms(0666));
  const Ran refused = command.run("coverage --from-histogram --device-class H200");
  CHECK(refused.status == 4);
  CHECK_MESSAGE(says(refused.errors, "nothing that it holds is read: '" + overlay + "' is not used as overlay"),
                refused.errors);
}

TEST_CASE("a command that asks files alone refuses the address of a shared store") {
  const Command command;
  const std::string workload = workload_of(command, "512"), base = tuned_file(command, "base.kiln", true),
                    trace = command.path("t.trace", "rms_norm rows=300 cols=4096\n"),
                    store = " --remote " + command.path("store") + " --base " + base;
  const std::string why =
      " no shared store is asked; leave --remote out, and take the store's records into the overlay "
      "first: kiln cache pull --remote ADDRESS";
  const std::string prewarm =
      "prewarm " + workload + " --device-class H200 --overlay '' -o " + command.path("out.kiln");
  check_refused(command.run(prewarm + store), 2, "with --arch and --device-class" + why);
  check_refused(command.run("replay --dry-run " + trace + store), 2, "with --dry-run" + why);
  CHECK(command.run("replay --dry-run " + trace + " --remote '' --base " + base).status == 0);
}

TEST_CASE("kiln workload writes what engines counted, the most launched first") {
  const Command command;
  const std::string counts = command.path("counts.kiln"), workload = command.path("counted.toml");
  store::File::open(counts, store::Access::read_write)
      ->add_to_histogram({{"rms_norm", "rows=300 cols=4096 dtype=bf16 residual=none quantise=none", 32},
                          {"rms_norm", "rows=1000 cols=4096 dtype=f16 residual=add quantise=none", 64},
                          {"gone", "rows=1", 16}});
  const std::string write = "workload --from-histogram " + counts + " -o " + workload;
  CHECK(command.run(write).status == 0);
  const std::string text = command.run("workload --from-histogram " + counts).output;
  CHECK(says(text,
             "axes  = { rows = 1024, cols = 4096 }\ntypes = { dtype = \"f16\", residual = \"add\" }\n\n[[workload]]"));
  CHECK(says(text, "About 16 launches more of ops or sizes"));
  CHECK(says(command.run("--json coverage " + workload + " --device-class H200 --overlay ''").output, "\"buckets\":2"));
  CHECK(command.run(write).status == 0);  // what it wrote itself
  std::ofstream(workload) << "[[workload]]\nop = \"rms_norm\"\n";
  CHECK(command.run(write).status == 2);  // what somebody else wrote
}
