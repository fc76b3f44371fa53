// Texts of records, manifests, names and words that act on a terminal: shown escaped, by every command.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

/// Clears the screen, sets the title, a control of one character, DEL, right to left, and an isolate.
const std::string escaping =
    "a\x1b[2J\x1b]0;t\x07\r\b\xc2\x9b"
    "31m\x7f\xe2\x80\xae\xe2\x81\xa7z";

bool acts_on_a_terminal(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) return true;
    const std::string_view rest = text.substr(at);
    if (rest.size() > 1 && byte == 0xc2 && static_cast<unsigned char>(rest[1]) < 0xa0) return true;
    for (const std::string_view turning :
         {"\xe2\x80\xaa", "\xe2\x80\xab", "\xe2\x80\xac", "\xe2\x80\xad", "\xe2\x80\xae", "\xe2\x81\xa6",
          "\xe2\x81\xa7", "\xe2\x81\xa8", "\xe2\x81\xa9"})
      if (rest.starts_with(turning)) return true;
  }
  return false;
}

/// Whatever its exit status: what it prints acts on no terminal. `shows`: it shows the escaping text, escaped.
std::string check_harmless(const std::string& line, bool shows) {
  const Outcome outcome = shell(line);
  CAPTURE(line);
  CAPTURE(outcome.output);
  CHECK(outcome.status < 128);
  CHECK(!outcome.output.empty());
  CHECK(!acts_on_a_terminal(outcome.output));
  if (shows) CHECK((contains(outcome.output, "\\x1b[2J") || contains(outcome.output, "\\u001b[2J")));
  return outcome.output;
}

void make_hostile(store::Record& record) {
  for (std::string* text :
       {&record.provenance.device_name, &record.provenance.strategy, &record.provenance.kiln_version})
    *text = escaping;
  for (store::Choice& choice : record.choices) choice.config += escaping;
  for (store::TriedCandidate& candidate : record.candidates) candidate.reason = escaping;
}

}  // namespace

TEST_CASE("fault 51: what a record says is shown escaped by every command that shows it, and exported as it is") {
  const TemporaryFolder folder;
  const fs::path overlay = tuned_overlay(folder), base = tuned_overlay(folder, "base.kiln");
  change_record(overlay, make_hostile);
  store::Record another = records_of(overlay).front();
  for (std::string_view part :
       {std::string_view(another.device_class), std::string_view("dtype=f32"), std::string_view("scale")})
    another.key.insert(another.key.find(part) + part.size(), escaping);  // from its end, as they lie in it
  for (std::string* text : {&another.op, &another.bucket, &another.device_class}) *text += escaping;
  store::File::open(overlay, store::Access::read_write)->put(another, nullptr);
  const std::string with = globals(folder);
  std::int64_t cases = 0;
  for (const char* form : {"", " --json"}) {
    check_harmless("kiln cache ls" + with + form, true);
    check_harmless("kiln cache show scale" + with + form, true);
    check_harmless("kiln cache stats" + with + form, true);
    check_harmless("kiln cache diff " + base.string() + " " + overlay.string() + form, true);
    check_harmless("kiln cache verify " + overlay.string() + form, false);
    check_harmless("kiln cache prune --dry-run --op scale" + with + form, false);
    check_harmless("kiln explain scale rows=64 cols=128 dtype=f32" + with + form, false);
    check_harmless("kiln run scale rows=64 cols=128 dtype=f32" + with + form, false);
    check_harmless("kiln coverage scale rows=64 cols=128 dtype=f32" + with + form, false);
    cases += 9;
  }
  const std::string text = check_harmless("kiln cache export --text" + with, true);
  write(folder / "exported.jsonl", text);
  const fs::path again = folder / "again.kiln";
  expect(0, "kiln cache merge " + (folder / "exported.jsonl").string() + " -o " + again.string());
  const auto before = records_of(overlay), after = records_of(again);
  REQUIRE(after.size() == before.size());
  for (const store::Record& record : before)
    CHECK(std::count_if(after.begin(), after.end(), [&](const store::Record& each) {
            return each.key == record.key && each.provenance.device_name == record.provenance.device_name;
          }) == 1);
  tally(51, cases + 1, "commands over records of escaping text");
}

TEST_CASE("fault 51: so are a manifest's texts, names of files, and words of the command line") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  op.edit("op.toml", "\"y = (x + bias) * factor\"", "\"a\\u001b[2J\\u009b31m\\u007f\\u202ez\"");
  const std::string with = op.globals(folder / "overlay.kiln");
  const std::string name = "'" + (folder / escaping.c_str()).string() + "'";
  for (const char* form : {"", " --json"}) {
    check_harmless("kiln ops" + op.templates() + form, true);
    check_harmless("kiln ops scale" + op.templates() + form, true);
    check_harmless("kiln cache ls " + name + ".kiln" + form, true);
    check_harmless("kiln ops '" + escaping + "'" + form, true);
    check_harmless("kiln '" + escaping + "'" + form, true);
    check_harmless("kiln cache stats --base " + name + form, true);
    check_harmless("kiln cache stats --overlay " + name + ".kiln" + form, true);
    check_harmless("kiln tune scale 'rows=" + escaping + "' cols=128" + with + form, true);
  }
  op.edit("tiled.toml", "threads = [64, 128, 256]", "threads = [\"\\u001b[2J\"]");
  check_harmless("kiln ops scale" + op.templates(), true);
  tally(51, 17, "commands over escaping manifests and words");
}

}  // namespace kiln::faults
