// The command that coverage, explain, a dry replay and prewarm name next: it finds what they found, and mends what they miss.
#include "store/key_files.hpp"
#include "tuned_files.hpp"

using namespace kiln::testing;

namespace {

/// Runs where no file of this repository is near.
Ran run_apart(const Command& command, const std::string& arguments) {
  return command.run(arguments, "cd '" + command.path("") + "' && ");
}

}  // namespace

TEST_CASE("coverage ends with the command that tunes what has no record, and names the GPU that it needs") {
  const Command command;
  const std::string base = tuned_file(command, "a.kiln", true);
  const Ran ran = run_apart(command, "coverage " + workload_of(command, "\"1..512\"") + " --base " + base);
  CHECK_MESSAGE(says(ran.output, "next: kiln prewarm " + command.path("w.toml") + " -o FILE.kiln --base " + base +
                                     ", on a GPU of class H200, tunes what is missing"),
                ran.output);
}

TEST_CASE("the next command repeats all options that decide what is found, as a shell reads them") {
  const Command command;
  std::filesystem::create_directories(command.path("my keys"));
  std::filesystem::create_directories(command.path("ops"));
  const std::string bare = tuned_file(command, "bare.kiln", false);
  const std::string options = " --base " + bare + " --overlay \"\" --trust signed --trusted-keys '" +
                              command.path("my keys") + "' --templates " + command.path("ops");
  const Ran ran = run_apart(command, "coverage " + workload_of(command, "512") + options);
  CHECK_MESSAGE(says(ran.output, "next: kiln prewarm " + command.path("w.toml") + " --arch sm_90a --device-class H200" +
                                     options + " -o FILE.kiln compiles what is missing"),
                ran.output);
  CHECK(says(ran.output, "; sign it (kiln cache sign FILE.kiln --key KEY.pem); then add --base FILE.kiln\n"));
  CHECK(run_apart(command, "--json coverage " + command.path("w.toml") + options)
            .output.find("\"next\":[\"kiln prewarm ") != std::string::npos);
}

TEST_CASE("where trust alone is lacking, coverage says how to give it, and no prewarm") {
  const Command command;
  const kiln::store::Folder folder;
  const std::string base = tuned_file(command, "a.kiln", true);
  const std::string asked = "coverage " + workload_of(command, "512") + " --base " + base + " --trust signed";
  const Ran unsigned_file = run_apart(command, asked);
  CHECK_MESSAGE(says(unsigned_file.output, "next: sign " + base + " (kiln cache sign " + base + " --key KEY.pem)"),
                unsigned_file.output);
  CHECK_FALSE(says(unsigned_file.output, "prewarm"));
  const auto keys = kiln::store::make_keys(folder, "release");
  REQUIRE(command.run("cache sign " + base + " --key " + keys.secret.string()).status == 0);
  std::filesystem::create_directories(command.path("none"));
  const Ran unknown = run_apart(command, asked + " --trusted-keys " + command.path("none"));
  CHECK_MESSAGE(says(unknown.output, "next: trust the key that signed " + base + ", whose fingerprint is "),
                unknown.output);
  CHECK(says(unknown.output, "(install -D -m 644 PUBLIC.pem " + command.path("none") + "/PUBLIC.pem)"));
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
  CHECK_FALSE(says(all, "tunes what is missing"));
  const std::string some = covered("[32, 64]");
  CHECK(says(some, "next: add --base cache/other.kiln, which has 1 of the 2 missing records\n"));
  CHECK(says(some, "tunes what is missing"));
  CHECK_FALSE(says(covered("32"), "next: add"));
}

TEST_CASE("coverage names the usual overlay where another was given") {
  const Command command;
  tuned_file(command, "overlay.kiln", true);
  const std::string asked = "coverage " + workload_of(command, "512") + " --device-class H200 --overlay ";
  CHECK(says(run_apart(command, asked + "''").output, "next: add --base " + command.path("overlay.kiln")));
}
