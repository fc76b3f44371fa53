// Overlay paths that are empty, as an option and as a variable: an overlay in memory.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {

TEST_CASE(
    "fault 101: an empty overlay path is an overlay in memory, by option and by variable, and what verifies exits with 0") {
  const TemporaryFolder folder;
  std::string templates;
  for (const fs::path& path : test_ops()) templates += " --templates " + path.string();
  const std::string home = "HOME='" + (folder / "").string() + "' XDG_CACHE_HOME= ";
  write(folder / "trace", "scale rows=64 cols=128 dtype=f32\n");
  std::int64_t cases = 0;
  for (const auto& [variables, option] :
       {std::pair(home, std::string(" --overlay ''")), std::pair(home + "KILN_CACHE='' ", std::string())}) {
    for (const std::string words : {"run scale rows=64 cols=128 dtype=f32", "replay @ --verify", "cache ls"}) {
      std::string line = words;
      if (const std::size_t at = line.find('@'); at != std::string::npos)
        line.replace(at, 1, (folder / "trace").string());
      const std::string said = expect(0, variables + "'" KILN_COMMAND "' " + line + templates + option);
      CHECK_MESSAGE(!contains(said, "overlay does not keep"), said);
      ++cases;
    }
    CHECK(
        contains(expect(4, variables + "'" KILN_COMMAND "' tune scale rows=64 cols=128 dtype=f32" + templates + option),
                 "as its empty path asks"));
    ++cases;
  }
  CHECK(!fs::exists(folder / ".cache"));
  tally(101, ++cases, "overlay paths that are empty");
}

}  // namespace kiln::faults
