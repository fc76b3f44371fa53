// An export that would hold nothing, over a release that is good.
#include "faults/engine/fixture.hpp"
#include "store/support.hpp"

namespace kiln::faults {
namespace {

using store::bytes_of;

/// Exports into release.kiln and release.jsonl, which exist, and into new names: refused, and all is as it was.
std::int64_t check_refused_everywhere(const TemporaryFolder& folder, const std::string& before,
                                      const std::string& words, int status, const char* said) {
  std::int64_t cases = 0;
  for (const char* kind : {"", "--text "})
    for (const char* name : {"release", "new"}) {
      const fs::path output = folder / (name + std::string(*kind == '\0' ? ".kiln" : ".jsonl")).c_str();
      const bool is_there = fs::exists(output);
      const auto bytes = is_there ? bytes_of(output) : std::string();
      const Outcome outcome =
          shell(before + "'" KILN_COMMAND "' cache export --replace " + kind + "-o " + output.string() + " " + words);
      CAPTURE(outcome.output);
      CHECK(outcome.status == status);
      CHECK(contains(outcome.output, said));
      CHECK(fs::exists(output) == is_there);
      if (is_there) CHECK(bytes_of(output) == bytes);
      ++cases;
    }
  for (const fs::directory_entry& each : fs::directory_iterator(folder / ""))
    CHECK_MESSAGE(!contains(each.path().string(), ".tmp"), each.path().string());
  return cases;
}

}  // namespace

TEST_CASE("fault 40: an export of nothing is refused, and the release that is there stands") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder);
  const std::string own = "--overlay " + overlay.string() + " ";
  for (const char* words : {"-o ", "--text -o "})
    expect(0, "kiln cache export " + own + words +
                  (folder / (contains(words, "text") ? "release.jsonl" : "release.kiln")).string());
  std::int64_t cases = 0;
  cases += check_refused_everywhere(folder, "", own + "--op rms_norm", 2, "rms_norm");
  cases += check_refused_everywhere(folder, "", own + "--device-class sm_90/mp1/l2_1/smem_1/bus_1", 2, "no record");
  cases += check_refused_everywhere(folder, "", "--overlay " + (folder / "missing.kiln").string(), 2, "no record");
  fs::permissions(tuned_overlay(folder, "mode.kiln"), fs::perms::others_write, fs::perm_options::add);
  cases += check_refused_everywhere(folder, "", "--overlay " + (folder / "mode.kiln").string(), 4, "written by others");
  store::run_sql(tuned_overlay(folder, "newer.kiln"), "PRAGMA user_version = 99");
  cases += check_refused_everywhere(folder, "", "--overlay " + (folder / "newer.kiln").string(), 4, "newer Kiln");
  cases += check_refused_everywhere(folder, "env -u HOME -u KILN_CACHE -u XDG_CACHE_HOME ", "", 4, "HOME");
  write(folder / "empty.jsonl", "");
  CHECK(contains(
      expect(2, "kiln cache merge " + (folder / "empty.jsonl").string() + " -o " + (folder / "merged.kiln").string()),
      "in the text that was read"));
  tally(40, ++cases, "exports of nothing");
}

}  // namespace kiln::faults
