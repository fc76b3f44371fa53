// Bases whose machine code is not used, or that are left out: told in a program, too, and refused where a program asks for that.
#include "faults/engine/fixture.hpp"
#include "store/support.hpp"

namespace kiln::faults {
namespace {

struct UnusedBase {
  const char* name;
  const char* said;  // in Engine::warnings()
};

/// A base that others may write, one that is missing, and one of a newer format.
std::vector<UnusedBase> unused_bases(const TemporaryFolder& folder) {
  fs::permissions(tuned_overlay(folder, "mode.kiln"), fs::perms::others_write, fs::perm_options::add);
  store::run_sql(tuned_overlay(folder, "newer.kiln"), "PRAGMA user_version = 99");
  return {{"mode.kiln", "machine code of the base"}, {"missing.kiln", "left out"}, {"newer.kiln", "newer Kiln"}};
}

}  // namespace

TEST_CASE("fault 72: a program is warned of a base that does not serve whole, and may refuse to start with it") {
  const TemporaryFolder folder;
  const Machine machine;
  std::int64_t cases = 0;
  for (const auto& [name, said] : unused_bases(folder)) {
    Options options = e2e::options(fs::path(), MissPolicy::nearest);
    options.bases = {folder / name};
    const std::vector<std::string> warnings = Engine(options).warnings();
    REQUIRE(warnings.size() == 1);
    CHECK_MESSAGE(contains(warnings.front(), said), warnings.front());
    CHECK(contains(warnings.front(), name));
    options.require_bases = true;
    const Error refused = error_of([&] { const Engine engine(options); });
    CHECK(refused.kind() == ErrorKind::bad_file);
    CHECK_MESSAGE(contains(refused.what(), said), refused.what());
    cases += 2;
  }
  Options options = e2e::options(fs::path(), MissPolicy::nearest);
  options.require_bases = true;
  options.bases = {tuned_overlay(folder, "good.kiln")};
  expect(0, "kiln cache export --text " + (folder / "good.kiln").string() + " -o " + (folder / "text.jsonl").string());
  options.bases.push_back(folder / "text.jsonl");  // which has no machine code to lose
  CHECK(Engine(options).warnings().empty());
  tally(72, ++cases, "bases that do not serve whole, in a program");
}

TEST_CASE("fault 72: where there is no NVRTC the error says why a base's machine code is not used") {
  const TemporaryFolder folder;
  std::int64_t cases = 0;
  for (const auto& [name, said] : unused_bases(folder)) {
    if (std::string_view(name) != "mode.kiln") continue;  // the command refuses the others at once
    const std::string out =
        expect(3, "KILN_NVRTC_LIBRARY=none '" KILN_COMMAND "' run scale rows=64 cols=128 dtype=f32 --base " +
                      (folder / name).string() + globals(folder, "new.kiln"));
    CHECK_MESSAGE(contains(out, "has the machine code and may not supply it"), out);
    CHECK_MESSAGE(contains(out, "mode.kiln"), out);
    ++cases;
  }
  Options options = e2e::options(fs::path(), MissPolicy::nearest);
  expect(0, "kiln cache export --text " + tuned_overlay(folder).string() + " -o " + (folder / "text.jsonl").string());
  const std::string out =
      expect(3, "KILN_NVRTC_LIBRARY=none '" KILN_COMMAND "' run scale rows=64 cols=128 dtype=f32 --base " +
                    (folder / "text.jsonl").string() + globals(folder, "new.kiln"));
  CHECK_MESSAGE(contains(out, "no file has the machine code"), out);
  tally(72, ++cases, "bases whose machine code is needed and not used");
}

}  // namespace kiln::faults
