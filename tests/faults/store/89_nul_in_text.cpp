// A NUL in a text: what parsers take for its end.
#include <sstream>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "manifest/op.hpp"
#include "store/json.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

std::string line_of(int at) { return to_json(sample_record_at(at)); }

TEST_CASE("fault 89: a line of text with a NUL is refused with its number, and nothing of the text is taken") {
  using namespace std::string_literals;
  const Folder folder;
  const std::string a = line_of(0), b = line_of(1), c = line_of(2);
  const std::pair<std::string, int> texts[] = {
      {a + "\0"s + b + "\0"s + c, 1}, {a + "\0 garbage"s, 1},
      {a + "\n" + b + "\0\n"s, 2},    {"\0"s + a, 1},
      {a + "\n\0\n"s + b + "\n", 2},  {a + "\n" + std::string(5000, ' ') + "\0"s + b, 2},
      {"\xff\xfe{\0\"\0"s, 1}};
  for (const auto& [text, line] : texts) {
    const auto path = folder / "records.jsonl";
    write_bytes(path, text);
    const auto to = File::in_memory();
    std::istringstream stream(text);
    for (const auto& said :
         {refusal([&] { import_text(stream, path.string(), *to); }), refusal([&] { read_text(path); })})
      CHECK_MESSAGE(said.starts_with("bad_input: " + path.string() + ":" + std::to_string(line) + ": found a NUL byte"),
                    said);
    CHECK(to->stats().records == 0);
  }
  faults::tally(89, 2 * static_cast<std::int64_t>(std::size(texts)), "texts with a NUL");
}

TEST_CASE("fault 89: a manifest or a kernel's source with a NUL is refused with the line's number") {
  using namespace std::string_literals;
  const Folder folder;
  const auto op = folder / "scale";
  std::int64_t cases = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale")) {
    fs::remove_all(op);
    fs::copy(fs::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale", op);
    const auto file = op / entry.path().filename().string();
    if (file.extension() != ".toml" && file.extension() != ".cuh") continue;
    CHECK(refusal([&] { manifest::load_op(op); }).empty());
    write_bytes(file, bytes_of(file) + "//\0 lost\n"s);
    const auto lines = std::ranges::count(bytes_of(file), '\n');
    const auto said = refusal([&] { manifest::load_op(op); });
    CHECK_MESSAGE(contains(said, file.string() + ":" + std::to_string(lines) + ": found a NUL byte"), said);
    ++cases;
  }
  CHECK(cases >= 3);
  faults::tally(89, cases, "files of an op with a NUL");
}

}  // namespace
}  // namespace kiln::store
