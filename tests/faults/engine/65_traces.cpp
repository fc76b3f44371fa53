// Numbers of the command that are no numbers, a trace drawn at the end of a range, and one that an editor wrote with a byte order mark.
#include "faults/engine/fixture.hpp"

using namespace kiln;
using namespace kiln::faults;

TEST_CASE("fault 65: a median at an end of its range is drawn, however small sigma is") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  for (const std::string low : {"5", "7", "25", "1000"}) {
    const std::string drawn = expect(0, "timeout 10 '" KILN_COMMAND "'" + op.templates() + "trace scale rows=" + low +
                                            "..4096 cols=1 --count 1 --sigma 1e-300 --median " + low);
    CHECK(contains(drawn, "scale rows=" + low + " cols=1 dtype=f32"));
  }
  tally(65, 4, "draws at the end of a range");
}

TEST_CASE("fault 65: what is no number is refused by its option") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  CHECK(contains(expect(2, "kiln trace scale rows=1..64 cols=1 --median nan" + op.templates()),
                 "the median nan lies outside rows=1..64"));
  CHECK(contains(expect(2, "kiln tune scale rows=1 cols=1 --seconds nan" + op.globals(folder / "o.kiln")),
                 "nan is not a number from 0.001 to 1000000"));
  tally(65, 2, "numbers that are none");
}

TEST_CASE("fault 65: a trace that begins with a byte order mark is read, and named where it is wrong") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  const std::string replay = "kiln" + op.globals(tuned_overlay(folder)) + "replay --dry-run " + (folder / "t").string();
  write(folder / "t", "\xef\xbb\xbfscale rows=64 cols=128 dtype=f32\r\n");
  expect(0, replay);
  write(folder / "t", "\xef\xbb\xbf# drawn\r\nscale rows=-1 cols=128\r\n");
  CHECK(contains(expect(2, replay), "t:2: op 'scale': axis 'rows' is -1"));
  tally(65, 2, "traces with a byte order mark");
}
