#include <sys/resource.h>
#include <zstd.h>

#include <algorithm>
#include <functional>

#include "faults/sanitizer.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/opening.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

constexpr std::int64_t far_too_much = std::int64_t{256} << 20;  // four times the limit

/// zstd's frame of this many zeros, a ten thousandth of their size, with or without saying how many they are.
std::vector<std::byte> bomb(std::int64_t bytes, bool says_so) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, says_so ? 1 : 0);
  if (says_so) ZSTD_CCtx_setPledgedSrcSize(context, static_cast<unsigned long long>(bytes));
  const std::vector<std::byte> zeros(1 << 20);
  std::vector<std::byte> frame(std::size_t{4} << 20);
  ZSTD_outBuffer out{frame.data(), frame.size(), 0};
  for (std::int64_t done = 0; done < bytes; done += static_cast<std::int64_t>(zeros.size())) {
    ZSTD_inBuffer in{zeros.data(), zeros.size(), 0};
    const bool last = done + static_cast<std::int64_t>(zeros.size()) >= bytes;
    while (in.pos < in.size) ZSTD_compressStream2(context, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
  }
  ZSTD_freeCCtx(context);
  frame.resize(out.pos);
  return frame;
}

/// A JSON array of empty strings, each of which takes thirty times its text in memory.
std::string many_names(std::size_t bytes) {
  std::string names = "[\"\"";
  while (names.size() < bytes) names += ",\"\"";
  return names + "]";
}

struct Bomb {
  std::string name;
  std::function<void(PackedCubin&)> arm;
};

std::vector<Bomb> bombs() {
  return {{"states a terabyte", [](PackedCubin& cubin) { cubin.image_bytes = std::int64_t{1} << 40; }},
          {"states less than nothing", [](PackedCubin& cubin) { cubin.image_bytes = -1; }},
          {"states a byte more than there are", [](PackedCubin& cubin) { ++cubin.image_bytes; }},
          {"is no frame", [](PackedCubin& cubin) { std::ranges::fill(cubin.image, std::byte{0x5a}); }},
          {"is empty", [](PackedCubin& cubin) { cubin.image.clear(); }},
          {"is cut off", [](PackedCubin& cubin) { cubin.image.resize(cubin.image.size() / 2); }},
          {"is followed by another",
           [](PackedCubin& cubin) {
             const auto copy = cubin.image;
             cubin.image.insert(cubin.image.end(), copy.begin(), copy.end());
           }},
          {"unpacks to far too much, and says so",
           [](PackedCubin& cubin) {
             cubin.image = bomb(far_too_much, true);
             cubin.image_bytes = far_too_much;
           }},
          {"unpacks to far too much under a small size",
           [](PackedCubin& cubin) { cubin.image = bomb(far_too_much, true); }},
          {"unpacks to far too much and does not say so",
           [](PackedCubin& cubin) { cubin.image = bomb(far_too_much, false); }},
          {"names that are no JSON", [](PackedCubin& cubin) { cubin.lowered_names = "[1, 2"; }},
          {"names nested without end", [](PackedCubin& cubin) { cubin.lowered_names = std::string(4 << 20, '['); }},
          {"names without end", [](PackedCubin& cubin) { cubin.lowered_names = many_names(std::size_t{16} << 20); }}};
}

/// Puts it as its own writer would, with a right digest.
void plant(const std::filesystem::path& path, const std::string& name, const std::function<void(PackedCubin&)>& arm) {
  Connection connection = open_existing(path, Access::read_write);
  auto cubin = pack(sample_cubin(name));
  arm(cubin);
  put_cubin(connection, cubin, digest_of(cubin), false);
}

std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

// Less than any of them would take. AddressSanitizer keeps what is freed.
constexpr std::int64_t bound = std::int64_t{faults::address_sanitizer ? 512 : 96} << 20;

TEST_CASE(
    "fault 33: a compression bomb, and a size that does not fit, are misses under a right digest, in bounded memory") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  File::open(path, Access::read_write)->put_cubin(sample_cubin("good"));
  for (const Bomb& each : bombs()) plant(path, each.name, each.arm);
  const int status = exit_status(in_child([&] {
    const auto before = peak_bytes();
    const auto base = File::open(path, Access::read_only);
    for (const Bomb& each : bombs())
      if (base->find_cubin(digest_named(each.name))) return false;
    const bool right = base->cubins().size() == 1 && base->find_cubin(digest_named("good")).has_value();
    return right && peak_bytes() - before < bound;
  }));
  CHECK(status == 0);
  const auto file = File::open(path, Access::read_write);
  for (const Bomb& each : bombs()) {
    CAPTURE(each.name);
    CHECK(!file->find_cubin(digest_named(each.name)));
  }
  const auto count = static_cast<std::int64_t>(bombs().size());
  CHECK(file->counters().quarantined == count);
  CHECK(file->stats().cubins == 1);
  CHECK(rows_of(path, "SELECT count(*) FROM quarantine") == std::to_string(count) + "\n");
  faults::tally(33, count, "cubins that are bombs");
}

TEST_CASE("fault 33: a row larger than any that Kiln writes is a miss, in bounded memory") {
  constexpr std::int64_t row_bytes = 80'000'000;
  const auto text = "printf('%.*c', " + std::to_string(row_bytes) + ", 'x')";
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", 3);
  run_sql(path, "UPDATE image SET frame = zeroblob(" + std::to_string(row_bytes) + ") WHERE cubin = 1;" +
                    "UPDATE record SET bucket = " + text + " WHERE key = 'key1';" +
                    "UPDATE candidate SET reason = " + text + " WHERE record = 3 AND position = 0");
  const int status = exit_status(in_child([&] {
    const auto before = peak_bytes();
    const auto base = File::open(path, Access::read_only);
    if (base->find_cubin(digest_named("0")) || base->find_record("key1")) return false;
    if (!base->find_record("key0", true) || !base->find_record("key2") || !base->find_cubin(digest_named("1")))
      return false;
    if (peak_bytes() - before > bound) return false;
    // Candidates are found by their rows themselves, which SQLite reads for that.
    return !base->find_record("key2", true) && base->counters().quarantined == 3 &&
           peak_bytes() - before < row_bytes + bound;
  }));
  CHECK(status == 0);
  const auto file = File::open(path, Access::read_write);
  CHECK(!file->find_cubin(digest_named("0")));
  CHECK(file->stats().cubins == 2);
  CHECK(!file->find_record("key1"));
  file->put(sample_record_at(1), nullptr);
  CHECK(file->find_record("key1"));
  faults::tally(33, 4, "rows past every limit");
}

TEST_CASE("fault 33: a choice larger than any that Kiln writes is a miss, in memory bounded by its own size") {
  constexpr std::int64_t row_bytes = 80'000'000;
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", 3);
  run_sql(path, "UPDATE choice SET config = printf('%.*c', " + std::to_string(row_bytes) +
                    ", 'x') WHERE record = 2 AND position = 0");
  const int status = exit_status(in_child([&] {
    const auto before = peak_bytes();
    const auto base = File::open(path, Access::read_only);
    if (base->find_record("key1") || !base->find_record("key0") || !base->find_record("key2")) return false;
    return base->counters().quarantined == 1 && peak_bytes() - before < row_bytes + bound;
  }));
  CHECK(status == 0);
  const auto file = File::open(path, Access::read_write);
  CHECK(!file->find_record("key1"));
  file->put(sample_record_at(1), nullptr);
  CHECK(file->find_record("key1"));
  faults::tally(33, 2, "choices past every limit");
}

TEST_CASE("fault 33: what could not be stored again is refused when it is put") {
  const auto file = File::in_memory();
  CubinRow huge = sample_cubin("huge", 0);
  huge.image.resize((std::size_t{64} << 20) + 1);
  CHECK(contains(refusal([&] { file->put_cubin(huge); }), "the limit is 67108864"));
  auto record = sample_record("key");
  record.bucket = std::string(std::size_t{80} << 20, 'x');
  CHECK(!refusal([&] { file->put(record, nullptr); }).empty());
  record = sample_record("key");
  record.choices[0].config = std::string(std::size_t{80} << 20, 'x');
  CHECK(!refusal([&] { file->put(record, nullptr); }).empty());
  CHECK(file->stats().records == 0);
  CHECK(file->stats().cubins == 0);
  faults::tally(33, 3, "rows that are too large to put");
}

}  // namespace
}  // namespace kiln::store
