// The scripts of docs/sharing.md, run as they stand there, with one machine's folders in the place of a cluster's.
#include <fstream>

#include "e2e/shared.hpp"

namespace e2e {
namespace {

/// The first block of code after these words of the document.
std::string block_after(const std::string& words) {
  std::ifstream file(std::filesystem::path(KILN_SOURCE_DIR) / "docs/sharing.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t at = text.find(words);
  REQUIRE_MESSAGE(at != std::string::npos, words);
  const std::size_t begin = text.find("```\n", at) + 4;
  return text.substr(begin, text.find("```", begin) - begin);
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  REQUIRE_MESSAGE(text.find(from) != std::string::npos, from);
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

/// Runs a script by bash that stops at the first error, after these lines. The command has the tests' ops.
std::string run_script(const TemporaryFolder& folder, const std::string& before, const std::string& script) {
  std::string templates;
  for (const auto& path : test_ops()) templates += " --templates " + path.string();
  std::ofstream(folder / "script.sh") << "set -e\nkiln() { '" KILN_COMMAND "' \"$@\"" << templates << "; }\n"
                                      << "tuned() { kiln tune scale rows=32,64 cols=128 dtype=f32 --json --quiet; }\n"
                                      << before << script;
  return expect(0, "env -u KILN_CACHE -u XDG_CACHE_HOME -u XDG_CONFIG_HOME HOME=" + (folder / "home").string() +
                       " USER=somebody bash " + (folder / "script.sh").string());
}

constexpr const char* is_tuned = "\"outcome\":\"tuned\"";
constexpr const char* is_found = "\"outcome\":\"found\"";

}  // namespace

TEST_CASE("the Slurm script of docs/sharing.md runs, and a second node tunes nothing") {
  const TemporaryFolder folder;
  make_key(folder);
  std::filesystem::create_directories(folder / "home/.config/kiln");
  std::filesystem::rename(folder / "secret", folder / "home/.config/kiln/cluster.pem");
  std::filesystem::rename(folder / "keys", folder / "home/.config/kiln/trusted");
  const std::string block = block_after("**A Slurm cluster**");
  for (const char* node : {"node0", "node1"}) {
    std::string script = block;
    std::filesystem::create_directory(folder / node);
    std::filesystem::permissions(folder / node, std::filesystem::perms(01777));  // as /tmp
    replace_all(script, "/tmp/", (folder / node).string() + "/");
    const std::string output =
        run_script(folder, "my_program() { tuned; }\nsrun() { \"$@\" & \"$@\" & wait -n; wait -n; }\n", script);
    CHECK(count_of(output, is_tuned) == (node == std::string("node0") ? 2 : 0));
    CHECK(count_of(output, is_tuned) + count_of(output, is_found) == 4);
  }
}

TEST_CASE("the CI script of docs/sharing.md runs without a store, on main, and on a branch that then tunes nothing") {
  const TemporaryFolder folder;
  make_key(folder);
  std::string script = block_after("**A CI fleet**");
  replace_all(script, "/ci/kiln", (folder / "store").string());
  const auto run = [&](const std::string& branch, const std::string& runner) {
    const std::string set = "BRANCH=" + branch + " KILN_RELEASE_KEY=" + (folder / "secret").string() +
                            "\nexport KILN_CACHE=" + (folder / "home").string() + "/" + runner + "/overlay.kiln\n";
    return run_script(folder, set + "ctest() { tuned; }\n", script);
  };
  std::filesystem::create_directories(folder / "home");
  CHECK(count_of(run("topic", "first"), is_tuned) == 2);
  std::filesystem::create_directory(folder / "store");
  CHECK(count_of(run("main", "second"), is_tuned) == 2);
  CHECK(count_of(run("topic", "third"), is_tuned) == 0);
}

}  // namespace e2e
