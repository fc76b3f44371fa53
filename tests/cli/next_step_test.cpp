// The command that coverage, explain, a dry replay and prewarm name next: it finds what they found, and mends what they miss.
#include "cli/table.hpp"
#include "store/key_files.hpp"
#include "tuned_files.hpp"

using namespace kiln::testing;

namespace {

/// Runs where no file of this repository is near.
Ran run_apart(const Command& command, const std::string& arguments) {
  return command.run(arguments, "cd '" + command.path("") + "' && ");
}

}  // namespace

TEST_CASE("explain refuses what a launch refuses") {
  const Command command;
  const std::string target = " --overlay '' --device-class H200";
  check_refused(command.run("explain gemm_batched batch=2 m=4 n=1 k=64 activation=swiglu" + target), 2,
                "run-time value 'y_batch_stride' is 0, under its minimum (1)");
  CHECK(command.run("explain gemm_batched batch=2 m=4 n=2 k=64 activation=swiglu" + target).status == 0);
  CHECK(command
            .run("explain attention_forward batch=1 heads=8 key_heads=4 queries=64 keys=64 head_dim=64 value_dim=64" +
                 target)
            .status == 0);  // whose scale has a default that depends on sizes
}

TEST_CASE("coverage ends with the command that tunes what has no record, and names the GPU that it needs") {
  const Command command;
  const std::string base = tuned_file(command, "a.kiln", true);
  const Ran ran = run_apart(command, "coverage " + workload_of(command, "\"1..512\"") + " --base " + base);
  CHECK_MESSAGE(says(ran.output,
                     "next: tune what is missing, on a GPU of class H200, then add --base FILE.kiln\n  kiln prewarm " +
                         command.path("w.toml") + " -o FILE.kiln --base " + base + "\n"),
                ran.output);
}

TEST_CASE("several workloads are one: a bucket that two of them name counts once, and the next command names both") {
  const Command command;
  const std::string base = tuned_file(command, "a.kiln", true);
  const std::string both =
      workload_of(command, "[64, 512]") + " " +
      command.path("x.toml", "[[workload]]\nop = \"rms_norm\"\naxes = { rows = [512, 1024], cols = 4096 }\n");
  const Ran ran = run_apart(command, "coverage " + both + " --base " + base);
  CHECK_MESSAGE(says(ran.output, "1 of 3 buckets has a record"), ran.output);
  CHECK_MESSAGE(says(ran.output, "\n  kiln prewarm " + both + " -o FILE.kiln --base " + base), ran.output);
  const std::string part = command.path("part.kiln");
  const Ran exported = command.run("cache export --workload " + command.path("w.toml") + " --workload " +
                                   command.path("x.toml") + " " + base + " -o " + part);
  CHECK(exported.status == 1);
  CHECK_MESSAGE(says(exported.errors,
                     "2 of 3 buckets of " + command.path("w.toml") + ", " + command.path("x.toml") + " have no record"),
                exported.errors);
  check_refused(command.run("coverage " + command.path("w.toml") + " " + command.path("none.toml")), 2, "none.toml");
  const std::string wrong = command.path("y.toml", "\n[[workload]]\nop = \"rms_nrom\"\n");
  check_refused(command.run("coverage " + command.path("w.toml") + " " + wrong), 2, "y.toml:2: there is no op");
}

TEST_CASE("the next command repeats all options that decide what is found, as a shell reads them") {
  const Command command;
  std::filesystem::create_directories(command.path("my keys"));
  std::filesystem::create_directories(command.path("ops"));
  const std::string bare = tuned_file(command, "bare.kiln", false);
  const std::string options = " --base " + bare + " --overlay \"\" --trust signed --trusted-keys '" +
                              command.path("my keys") + "' --templates " + command.path("ops");
  const Ran ran = run_apart(command, "coverage " + workload_of(command, "512") + options);
  CHECK_MESSAGE(says(ran.output, "\n  kiln prewarm " + command.path("w.toml") + " --device-class H200" + options +
                                     " -o FILE.kiln\n"),
                ran.output);
  CHECK(says(ran.output,
             "next: compile what is missing, without a GPU, sign FILE.kiln (kiln cache sign FILE.kiln --key KEY.pem), "
             "then add --base FILE.kiln\n"));
  const std::string json = run_apart(command, "--json coverage " + command.path("w.toml") + options).output;
  CHECK_MESSAGE(says(json, "\"next\":[{\"what\":\"compile what is missing, without a GPU, sign "), json);
  CHECK(says(json, "\"commands\":[\"kiln prewarm "));
}

TEST_CASE("where trust alone is lacking, coverage says how to give it, and no prewarm") {
  const Command command;
  const kiln::store::Folder folder;
  const std::string base = tuned_file(command, "a.kiln", true);
  const std::string asked = "coverage " + workload_of(command, "512") + " --base " + base + " --trust signed";
  const Ran unsigned_file = run_apart(command, asked);
  CHECK_MESSAGE(says(unsigned_file.output, "next: sign " + base + ", and trust the key unless it is trusted\n"),
                unsigned_file.output);
  CHECK(says(unsigned_file.output, "\n  kiln cache sign " + base + " --key KEY.pem\n"));
  CHECK_FALSE(says(unsigned_file.output, "prewarm"));
  const auto keys = kiln::store::make_keys(folder, "release");
  REQUIRE(command.run("cache sign " + base + " --key " + keys.secret.string()).status == 0);
  std::filesystem::create_directories(command.path("none"));
  const Ran unknown = run_apart(command, asked + " --trusted-keys " + command.path("none"));
  CHECK_MESSAGE(says(unknown.output, "next: trust the key that signed " + base + ", with the fingerprint "),
                unknown.output);
  CHECK(says(unknown.output, "\n  install -D -m 644 PUBLIC.pem " + command.path("none") + "/PUBLIC.pem\n"));
  CHECK_FALSE(says(unknown.output, "prewarm"));
  std::filesystem::create_directories(folder / "keys/revoked");
  std::filesystem::copy_file(keys.open, folder / "keys/revoked/release.pem");
  const Ran revoked = run_apart(command, asked + " --trusted-keys " + (folder / "keys").string());
  CHECK_MESSAGE(says(revoked.output, "next: sign " + base + " by a key that is not revoked"), revoked.output);
  std::filesystem::remove_all(folder / "keys/revoked");
  CHECK_FALSE(says(run_apart(command, asked + " --trusted-keys " + (folder / "keys").string()).output, "next: "));
}

TEST_CASE("coverage names a file at hand that has the missing records, in place of a tune") {
  const Command command;
  const std::string named = tuned_file(command, "b.kiln", true);
  std::filesystem::create_directories(command.path("cache"));
  const TunedRows other = tuned({"rows=64", "cols=4096", "dtype=bf16"});
  put(*kiln::store::File::open(command.path("cache/other.kiln"), kiln::store::Access::read_write), other);
  const auto covered = [&](const std::string& rows) {
    return run_apart(command, "coverage " + workload_of(command, rows) + " --base " + named).output;
  };
  const std::string all = covered("64");
  CHECK_MESSAGE(says(all, "next: add --base cache/other.kiln, which has what is missing\n"), all);
  CHECK_FALSE(says(all, "tune what is missing"));
  const std::string some = covered("[32, 64]");
  CHECK(says(some, "next: add --base cache/other.kiln, which has 1 of the 2 missing records\n"));
  CHECK(says(some, "tune what is missing"));
  CHECK_FALSE(says(covered("32"), "next: add"));
}

TEST_CASE("coverage names the usual overlay where another was given") {
  const Command command;
  tuned_file(command, "overlay.kiln", true);
  const std::string asked = "coverage " + workload_of(command, "512") + " --device-class H200 --overlay ";
  CHECK(says(run_apart(command, asked + "''").output, "next: add --base " + command.path("overlay.kiln")));
}

TEST_CASE("explain ends with the command that mends a miss, and with none after a hit") {
  const Command command;
  const std::string base = tuned_file(command, "a.kiln", true), bare = tuned_file(command, "bare.kiln", false);
  const auto explained = [&](const std::string& words, const std::string& options) {
    return run_apart(command, "explain rms_norm cols=4096 dtype=bf16 " + words + options).output;
  };
  const std::string tune = "\n  kiln tune rms_norm cols=4096 dtype=bf16 rows=9 --base " + base;
  const std::string on = "next: tune what is missing, on a GPU of class H200";
  CHECK(says(explained("rows=9", " --base " + base), on + ", and keep it in the overlay" + tune + "\n"));
  CHECK(says(explained("rows=9", " --overlay '' --base " + base),
             on + ", then add --base FILE.kiln" + tune + " --overlay FILE.kiln\n"));
  CHECK(says(explained("rows=300", " --base " + bare),
             "; WORKLOAD.toml names this problem, in the form that docs/deployment.md describes\n"
             "  kiln prewarm WORKLOAD.toml --device-class H200 --base " +
                 bare + " -o FILE.kiln\n"));
  CHECK(says(explained("rows=300", " --trust signed --base " + base), "next: sign " + base));
  CHECK_FALSE(says(explained("rows=300", " --base " + base), "next: "));
  CHECK(says(explained("rows=300", " --json --base " + base), "\"next\":[]"));
  CHECK_FALSE(says(explained("rows=300", " --device-class sm_75/mp72/l2_6291456/smem_65536/bus_384"), "next: "));
}

TEST_CASE("a dry replay ends with the command that mends its misses") {
  const Command command;
  const std::string base = tuned_file(command, "a.kiln", true), bare = tuned_file(command, "bare.kiln", false);
  const auto replayed = [&](const std::string& rows, const std::string& options) {
    const std::string trace = command.path("t.trace", "rms_norm rows=" + rows + " cols=4096 dtype=bf16\n");
    return run_apart(command, "replay --dry-run " + trace + " --base " + options).output;
  };
  CHECK(says(replayed("9", base), "\n  kiln replay " + command.path("t.trace") + " --base " + base + "\n"));
  CHECK(says(replayed("300", bare), "\n  kiln prewarm WORKLOAD.toml --device-class H200 --base " + bare));
  CHECK(says(replayed("300", base + " --trust signed"), "next: sign " + base));
  CHECK_FALSE(says(replayed("300", base), "next: "));
}

TEST_CASE("prewarm into the overlay says that records stay in the base files") {
  const Command command;
  const std::string base = tuned_file(command, "a.kiln", true);
  const std::string asked = "prewarm " + workload_of(command, "512") + " --arch sm_90a --base " + base;
  const Ran overlay = command.run(asked + " --overlay " + command.path("o.kiln"));
  CHECK_MESSAGE(says(overlay.output, "records of the base files stay there, so launches need both"), overlay.output);
  const Ran file = command.run(asked + " --overlay '' -o " + command.path("out.kiln"));
  CHECK_MESSAGE(says(file.output, "kept in       " + command.path("out.kiln")), file.output);
  CHECK_FALSE(says(file.output, "stay there"));
}

TEST_CASE("prewarm without a GPU names the file or the tune that brings a missing record") {
  const Command command;
  const std::string base = tuned_file(command, "a.kiln", true);
  const std::string asked = "prewarm " + workload_of(command, "[64, 512]") + " --arch sm_90a --overlay '' --base " +
                            base + " -o " + command.path("out.kiln");
  const Ran alone = run_apart(command, asked);
  CHECK(alone.status == 1);
  CHECK_MESSAGE(says(alone.output,
                     "next: tune what is missing, on a GPU of class H200, then add --base FILE.kiln\n"
                     "  kiln prewarm " +
                         command.path("w.toml") + " -o FILE.kiln --base " + base + " --overlay \"\"\n"),
                (alone.output + alone.errors));
  put(*kiln::store::File::open(command.path("b.kiln"), kiln::store::Access::read_write),
      tuned({"rows=64", "cols=4096", "dtype=bf16"}));
  CHECK(says(run_apart(command, asked).output,
             "next: add --base " + command.path("b.kiln") + ", which has what is missing"));
}

TEST_CASE("explain names the axes in which the nearest records differ") {
  const Command command;
  const auto file = kiln::store::File::open(command.path("a.kiln"), kiln::store::Access::read_write);
  for (const char* rows : {"rows=64", "rows=512"})
    for (const char* cols : {"cols=4096", "cols=8192"}) put(*file, tuned({rows, cols, "dtype=bf16"}));
  const auto found = [&](const std::string& words) {
    return run_apart(command, "explain rms_norm dtype=bf16 --device-class H200 --base a.kiln " + words).output;
  };
  CHECK(says(found("rows=64 cols=1024"), "no record of this bucket, 4 of other cols (4096, 8192) "));
  CHECK(says(found("rows=9 cols=4096"),
             "no record of this bucket, 4 of other sizes; nearest: 2 of other rows (64, 512) "));
}

TEST_CASE("a command is one line where it fits, else it is divided before an option and at no quoted word") {
  const std::string command = "kiln prewarm w.toml -o FILE.kiln --base 'my files/a.kiln' --overlay \"\"";
  CHECK(kiln::cli::wrapped_command(command, 0) == "  " + command + "\n");
  CHECK(kiln::cli::wrapped_command(command, 80) == "  " + command + "\n");
  CHECK(kiln::cli::wrapped_command(command, 50) ==
        "  kiln prewarm w.toml -o FILE.kiln \\\n"
        "      --base 'my files/a.kiln' --overlay \"\"\n");
  CHECK(kiln::cli::wrapped_command("kiln x 'it'\\''s a' --b c", 20) ==
        "  kiln x \\\n      'it'\\''s a' \\\n      --b c\n");
}
