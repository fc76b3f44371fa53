// The payloads of rows whose digests are right, and lines of exported text. The first byte says which:
//
//   r  records with choices and candidates    c  cubins    o  leases, the histogram and usage    anything else: text to import
//
// A sound row is read as it was written and survives export and import; any other is set aside, once.
#include <utf8.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "kiln/error.hpp"
#include "raw_rows.hpp"
#include "store/compression.hpp"
#include "store/fields.hpp"
#include "store/file.hpp"
#include "store/integrity.hpp"
#include "store/json.hpp"
#include "store/transfer.hpp"
#include "support.hpp"

namespace kiln::fuzz {
namespace {

struct Files {
  Scratch folder;
  std::unique_ptr<store::File> file = store::File::open(folder / "rows.kiln", store::Access::read_write);
  RawFile raw{folder / "rows.kiln"};
};

/// Compares the fields that it visits with the cells of their columns.
struct Comparison {
  const Row& row;
  bool same = true;
  void operator()(const char* name, const std::string& value) { same &= cell_of(row, name) == Cell(value); }
  void operator()(const char* name, store::Verdict value) {
    same &= cell_of(row, name) == Cell(std::string(to_string(value)));
  }
  void operator()(const char* name, store::Role value) {
    same &= cell_of(row, name) == Cell(std::string(to_string(value)));
  }
  void operator()(const char* name, std::integral auto value) {
    same &= cell_of(row, name) == Cell(static_cast<std::int64_t>(value));
  }
  void operator()(const char* name, double value) { same &= cell_of(row, name) == Cell(value); }
};

bool holds_int(const Row& row, std::string_view column) {
  const auto number = std::get<std::int64_t>(cell_of(row, column));
  return number >= std::numeric_limits<int>::min() && number <= std::numeric_limits<int>::max();
}

/// What cache/README.md asks of any row's text and costs.
bool is_believable(const Row& row) {
  return std::ranges::all_of(row, [](const NamedCell& each) {
    if (const auto* text = std::get_if<std::string>(&each.cell)) return utf8::is_valid(*text);
    if (const auto* real = std::get_if<double>(&each.cell)) return std::isfinite(*real) && *real >= 0;
    return true;
  });
}

bool is_sound_record(const Row& row) {
  return is_believable(row) && !std::get<std::string>(cell_of(row, "key")).empty() && holds_int(row, "driver_version");
}

std::optional<store::Role> role_of(const Row& choice) {
  return store::parse_role(std::get<std::string>(cell_of(choice, "role")));
}

double real_of(const Row& row, std::string_view column) { return std::get<double>(cell_of(row, column)); }

bool has_sound_times(const Row& row) {
  const auto samples = std::get<std::int64_t>(cell_of(row, "samples"));
  return samples >= 0 && real_of(row, "low_ns") <= real_of(row, "high_ns") &&
         (samples > 0 || real_of(row, "cost_ns") == 0);
}

bool is_sound_choice(const Row& row) { return is_believable(row) && has_sound_times(row) && role_of(row); }

/// Whether a key has the form of a bucket's, "OP@REVISION | AXES | TYPES | DEVICE_CLASS | REGIME". Then it must agree with
/// the record's fields, which tests/store checks.
bool is_of_bucket(std::string_view key) {
  const auto is_space = [&](std::size_t at) { return at >= key.size() || key[at] == ' '; };
  int bars = 0;
  for (std::size_t at = 0; at < key.size(); ++at)
    if (key[at] == '|' && (at == 0 || is_space(at - 1)) && is_space(at + 1)) ++bars;
  return bars == 4;
}

bool is_sound_candidate(const Row& row) {
  const auto baseline = std::get<std::int64_t>(cell_of(row, "baseline"));
  return is_believable(row) && has_sound_times(row) && holds_int(row, "registers") &&
         (baseline == 0 || baseline == 1) && store::parse_verdict(std::get<std::string>(cell_of(row, "verdict")));
}

/// Mostly makes times that the others do not contradict: few of random ones agree.
void reconcile_times(FuzzedDataProvider& data, Row& row) {
  if (data.ConsumeIntegralInRange(0, 7) == 0) return;
  Cell &low = std::ranges::find(row, "low_ns", &NamedCell::column)->cell,
       &high = std::ranges::find(row, "high_ns", &NamedCell::column)->cell,
       &samples = std::ranges::find(row, "samples", &NamedCell::column)->cell;
  if (std::get<double>(low) > std::get<double>(high)) std::swap(low, high);
  if (samples == Cell(std::int64_t{0})) samples = std::int64_t{1};
}

std::string exported(store::File& file) {
  std::ostringstream text;
  export_text(file, text, {});
  return text.str();
}

/// Two files in memory, made once: making the tables is most of a run's time.
store::File& emptied(int which) {
  static const std::array files = {store::File::in_memory(), store::File::in_memory()};
  store::File& file = *files.at(static_cast<std::size_t>(which));
  for (const store::Record& record : file.records()) file.remove_record(record.key);
  return file;
}

void check_text_round_trip(store::File& file) {
  const std::string text = exported(file);
  if (text.empty()) return;
  store::File& copy = emptied(0);
  std::istringstream lines(text);
  const auto report = import_text(lines, "text", copy);
  require(exported(copy) == text, "text that is exported is imported without loss");
  require(report.added == copy.stats().records, "an import counts what it adds");
}

void check_set_aside_once(store::File& file) {
  const auto before = file.counters();
  (void)file.records({}, true);
  (void)file.cubins();
  (void)file.histogram();
  (void)file.usage();
  require(file.counters().quarantined == before.quarantined, "a row that was set aside is met no more");
  require(file.counters().write_failures == 0 && file.counters().read_failures == 0, "nothing else fails");
}

void add_candidates(FuzzedDataProvider& data, Files& files, const Row& row, std::int64_t id, std::vector<Row>& sound) {
  const Cell key = cell_of(row, "key");
  for (std::int64_t position = 0; data.ConsumeBool() && position < 4; ++position) {
    Row given = {{"record", Cell(id)}, {"position", Cell(position)}};
    if (data.ConsumeBool()) given.push_back({"baseline", Cell(data.ConsumeIntegralInRange<std::int64_t>(0, 2))});
    Row candidate = files.raw.random_row("candidate", data, given);
    if (data.ConsumeIntegralInRange(0, 3) > 0)
      std::ranges::find(candidate, "verdict", &NamedCell::column)->cell = std::string(to_string(
          data.PickValueInArray({store::Verdict::ok, store::Verdict::wrong_result, store::Verdict::compile_failed,
                                 store::Verdict::launch_failed, store::Verdict::not_timed})));
    reconcile_times(data, candidate);
    if (files.raw.insert("candidate", candidate, {key}) && is_sound_candidate(candidate)) sound.push_back(candidate);
  }
}

std::vector<Row> random_choices(FuzzedDataProvider& data, Files& files) {
  std::vector<Row> choices;
  for (std::int64_t position = 0; position < 4 && data.ConsumeIntegralInRange(0, 3) > 0; ++position) {
    Row choice =
        files.raw.random_row("choice", data, {{"record", Cell(std::int64_t{0})}, {"position", Cell(position)}});
    if (data.ConsumeIntegralInRange(0, 7) > 0)
      std::ranges::find(choice, "role", &NamedCell::column)->cell =
          std::string(to_string(data.PickValueInArray({store::Role::fastest, store::Role::without_library})));
    reconcile_times(data, choice);
    choices.push_back(std::move(choice));
  }
  return choices;
}

/// Their number and, from role on, their fields: what a record's digest covers after its own.
std::vector<Cell> digested(const std::vector<Row>& choices) {
  std::vector<Cell> cells = {Cell(static_cast<std::int64_t>(choices.size()))};
  for (const Row& choice : choices)
    for (const NamedCell& each : choice)
      if (each.column != "record" && each.column != "position") cells.push_back(each.cell);
  return cells;
}

/// False when one of them is refused by SQLite, as a NaN is: then it is missing.
bool add_choices(Files& files, std::int64_t id, std::vector<Row>& choices) {
  bool all = true;
  for (Row& choice : choices) {
    std::ranges::find(choice, "record", &NamedCell::column)->cell = id;
    all = files.raw.insert_plain("choice", choice) && all;
  }
  return all;
}

void check_record(FuzzedDataProvider& data, Files& files) {
  const Row row = files.raw.random_row("record", data);
  std::vector<Row> choices = random_choices(data, files);
  std::vector<Row> candidates;
  bool sound = is_sound_record(row) && std::ranges::all_of(choices, is_sound_choice) &&
               std::ranges::any_of(choices, [](const Row& each) { return role_of(each) == store::Role::fastest; });
  files.raw.execute("BEGIN");
  const auto id = files.raw.insert("record", row, {}, digested(choices));
  if (id) sound = add_choices(files, *id, choices) && sound;
  if (id) add_candidates(data, files, row, *id, candidates);
  files.raw.execute("COMMIT");
  if (!id) return;
  const auto& name = std::get<std::string>(cell_of(row, "key"));
  const auto found = files.file->find_record(name, true);
  if (found || !is_of_bucket(name))
    require(found.has_value() == sound, "a record is found if and only if it and its choices are sound");
  if (!found) return;
  Comparison comparison{row};
  each_record_field(*found, comparison);
  require(comparison.same, "a record is read as it was written");
  require(found->choices.size() == choices.size(), "a record is read with all its choices");
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Comparison each{choices[i]};
    each_choice_field(found->choices[i], each);
    require(each.same, "a choice is read as it was written");
  }
  require(found->candidates.size() == candidates.size(), "sound candidates are read, and no others");
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    Comparison each{candidates[i]};
    each_candidate_field(found->candidates[i], each);
    require(each.same, "a candidate is read as it was written");
  }
}

Blob bytes_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

std::vector<std::string> random_words(FuzzedDataProvider& data) {
  std::vector<std::string> words;
  while (words.size() < 4 && data.ConsumeBool()) {
    words.push_back(data.ConsumeRandomLengthString(32));
    if (!utf8::is_valid(words.back())) words.back() = "word";
  }
  return words;
}

void check_cubin(FuzzedDataProvider& data, Files& files) {
  store::CubinRow cubin;
  for (std::byte& each : cubin.key) each = static_cast<std::byte>(data.ConsumeIntegral<std::uint8_t>());
  cubin.name_expressions = random_words(data);
  cubin.lowered_names = random_words(data);
  cubin.image = bytes_of(data.ConsumeRandomLengthString(4096));
  const store::PackedCubin packed = pack(cubin);
  // Each part is what Kiln would write, or anything.
  bool sound = true;
  const auto choose = [&](auto right, auto wrong) {
    const bool choose_right = data.ConsumeIntegralInRange(0, 7) > 0;
    sound &= choose_right;
    return choose_right ? right : wrong();
  };
  const auto any_text = [&] { return data.ConsumeRandomLengthString(64); };
  Row given = {{"key", Cell(Blob(packed.key.begin(), packed.key.end()))}};
  given.push_back({"name_expressions", Cell(choose(packed.name_expressions, any_text))});
  given.push_back({"lowered_names", Cell(choose(packed.lowered_names, any_text))});
  given.push_back(
      {"image_bytes", Cell(choose(packed.image_bytes, [&] { return data.ConsumeIntegral<std::int64_t>(); }))});
  const Blob frame = choose(packed.image, [&] { return bytes_of(data.ConsumeRandomLengthString(4096)); });
  const Row row = files.raw.random_row("cubin", data, given);
  files.raw.execute("BEGIN");
  const auto id = files.raw.insert("cubin", row, {}, {Cell(frame)});
  if (id) files.raw.insert_image(*id, frame);
  files.raw.execute("COMMIT");
  if (!id) return;
  const auto found = files.file->find_cubin(cubin.key);
  if (sound && is_believable(row)) {
    require(found.has_value(), "a sound cubin is found");
    require(found->image == cubin.image && found->name_expressions == cubin.name_expressions &&
                found->lowered_names == cubin.lowered_names,
            "a cubin is read as it was written");
  }
  if (!found) return;
  require(found->image.size() == static_cast<std::size_t>(std::get<std::int64_t>(cell_of(row, "image_bytes"))),
          "an image has the size that its row states");
  require(is_believable(row), "a cubin with text that is not UTF-8 is not found");
  require(unpack(pack(*found)).has_value(), "a cubin that was read can be written");
}

void check_lease(FuzzedDataProvider& data, Files& files) {
  Row row = files.raw.random_row("lease", data, {{"record_key", Cell(std::string("key"))}});
  const auto take = [&](const char* column, Cell value) {
    if (data.ConsumeBool()) std::ranges::find(row, column, &NamedCell::column)->cell = std::move(value);
  };
  std::string boot_id = read_bytes("/proc/sys/kernel/random/boot_id");
  while (boot_id.ends_with('\n')) boot_id.pop_back();
  take("boot_id", boot_id);
  take("pid_namespace", std::filesystem::read_symlink("/proc/self/ns/pid").string());
  take("pid", static_cast<std::int64_t>(getpid()));
  files.raw.insert("lease", row);
  if (files.file->acquire_lease("key", "us", 60)) files.file->release_lease("key", "us");
  require(files.file->counters().write_failures == 0, "no stored lease is in the way of asking for one");
}

void check_counts(FuzzedDataProvider& data, Files& files) {
  const Row usage = files.raw.random_row("usage", data);
  files.raw.insert("usage", usage);
  if (data.ConsumeBool())
    files.file->add_to_usage(
        {{std::get<std::string>(cell_of(usage, "source")), std::get<std::string>(cell_of(usage, "key")),
          data.ConsumeIntegral<std::int64_t>(), data.ConsumeIntegral<std::int64_t>()}});
  const Row row = files.raw.random_row("histogram", data);
  if (!files.raw.insert("histogram", row)) return;
  const auto op = std::get<std::string>(cell_of(row, "op")), problem = std::get<std::string>(cell_of(row, "problem"));
  if (data.ConsumeBool()) files.file->add_to_histogram({{op, problem, data.ConsumeIntegral<std::int64_t>()}});
  (void)files.file->histogram();
}

/// One line: what reads as a record and could be stored is written as it was read.
void check_line(std::string_view line) {
  store::Record record;
  try {
    record = store::record_from_json(line);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::bad_input, "a line that does not hold is bad input", error.what());
    return;
  }
  if (!flaw_of(record).empty()) return;
  const std::string text = to_json(record);
  require(to_json(store::record_from_json(text)) == text, "a record's line reads back to the same line");
}

void check_import(std::string_view text) {
  check_line(text.substr(0, text.find('\n')));
  store::File& file = emptied(1);
  std::istringstream lines{std::string(text)};
  try {
    const auto report = import_text(lines, "text", file);
    require(report.added == file.stats().records, "an import counts what it adds");
    check_text_round_trip(file);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::bad_input, "a text that does not hold is bad input", error.what());
    require(file.stats().records == 0, "nothing of a text that does not hold is imported");
  }
}

}  // namespace
}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace kiln::fuzz;
  static Files files;
  const char kind = size == 0 ? '\0' : static_cast<char>(bytes[0]);
  if (kind != 'r' && kind != 'c' && kind != 'o') {
    check_import({reinterpret_cast<const char*>(bytes), size});
    return 0;
  }
  FuzzedDataProvider data(bytes + 1, size - 1);
  files.raw.clear();
  for (int rows = 0; rows < 4 && data.remaining_bytes() > 0; ++rows) {
    if (kind == 'r') check_record(data, files);
    if (kind == 'c') check_cubin(data, files);
    if (kind == 'o') rows % 2 == 0 ? check_lease(data, files) : check_counts(data, files);
  }
  check_text_round_trip(*files.file);
  (void)files.file->cubins();
  (void)files.file->histogram();
  (void)files.file->usage();
  check_set_aside_once(*files.file);
  return 0;
}
