// What a large .kiln file costs: a look-up that is not hot, opening, merging, bytes a record; beside plain files in a folder and plain SQL.
//
//   bench_cache_file FOLDER CUBINS.kiln [RECORDS [MIB]]
//
// Makes two files of RECORDS (100000) records each, a quarter of their keys in common, each record with three choices, eight candidates and a
// cubin of its own: an image of CUBINS.kiln, stamped with its number. Exit 1 where an entry is not found, where the merged file lacks one, or where the
// merge takes more than MIB of memory. One JSON object a line; times are medians unless they are named otherwise.
// Google Benchmark does not fit: each look-up is the first of its key, and merges are whole processes, timed with their peak of memory.
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "row.hpp"
#include "store/integrity.hpp"
#include "store/transfer.hpp"

namespace {

using namespace kiln::store;
namespace fs = std::filesystem;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string key_of(std::int64_t number) {
  return fmt::format(
      "gemm@1 | m=pow2:{} n=exact:{} k=exact:4096 | layout=nt dtype=bf16 | sm_90/mp132/l2_62914560/smem_232448/bus_6016 | cold",
      1 << (number % 15), 8 * (number / 15 + 1));
}

Record record_of(std::int64_t number, double cost_ns) {
  Record record;
  record.key = key_of(number);
  record.op = "gemm";
  record.device_class = "sm_90/mp132/l2_62914560/smem_232448/bus_6016";
  record.regime = "cold";
  record.bucket = fmt::format("m={} n={} k=4096 layout=nt dtype=bf16", 1 << (number % 15), 8 * (number / 15 + 1));
  record.baseline_ns = cost_ns * 1.4;
  record.provenance = {"0.1.0", "NVIDIA H200", 13000, "exhaustive", 1790000000};
  const std::string config = "tile_m=128 tile_n=128 tile_k=32 stages=4 warps_m=2 warps_n=4 splits=1";
  for (int choice = 0; choice < 3; ++choice)
    record.choices.push_back({Role::fastest, fmt::format("m={}..{}", 8 * choice + 1, 8 * choice + 8), "mma", config,
                              cost_ns, cost_ns * 0.99, cost_ns * 1.01, 41, std::string(64, 'a'),
                              "nvrtc 13.0 build 65be0db342ad51a06876e71e210bccc5aa8322cf"});
  for (int candidate = 0; candidate < 8; ++candidate)
    record.candidates.push_back(
        {"mma", config, "m=24", Verdict::ok, "", cost_ns, cost_ns, cost_ns, 41, 128, 0, candidate == 0});
  return record;
}

kiln::manifest::Digest cubin_key(std::int64_t number) {
  return kiln::manifest::Hasher().field("bench").field(number).finish();
}

CubinRow cubin_of(std::int64_t number, const std::vector<CubinRow>& images) {
  CubinRow cubin = images[static_cast<std::size_t>(number) % images.size()];
  cubin.key = cubin_key(number);
  cubin.op = "gemm";
  std::memcpy(cubin.image.data() + cubin.image.size() - sizeof number, &number, sizeof number);
  return cubin;
}

/// Records [first, first + count), in transactions of a thousand, then sealed.
void make(const fs::path& path, std::int64_t first, std::int64_t count, double cost_ns,
          const std::vector<CubinRow>& images) {
  const auto file = File::open(path, Access::read_write);
  constexpr std::int64_t batch = 1000;
  for (std::int64_t from = first; from < first + count; from += batch)
    file->write_all([&](Writer& writer) {
      for (std::int64_t number = from; number < std::min(from + batch, first + count); ++number) {
        writer.put(record_of(number, cost_ns));
        writer.put(pack(cubin_of(number, images)));
      }
    });
  file->write_all([](Writer& writer) { writer.seal(); });
}

/// The way of caches that keep each entry as files: NUMBER.json and NUMBER.cubin, in 256 folders.
fs::path plain_file(const fs::path& folder, std::int64_t number, const char* suffix) {
  const auto name = kiln::manifest::to_hex(cubin_key(number));
  return folder / name.substr(0, 2) / (name + suffix);
}

void make_plain_files(const fs::path& folder, std::int64_t count, const std::vector<CubinRow>& images) {
  for (std::int64_t number = 0; number < count; ++number) {
    fs::create_directories(plain_file(folder, number, "").parent_path());
    std::ofstream(plain_file(folder, number, ".json")) << record_of(number, 1000).choices[0].config;
    const auto cubin = cubin_of(number, images);
    std::ofstream(plain_file(folder, number, ".cubin"), std::ios::binary)
        .write(reinterpret_cast<const char*>(cubin.image.data()), static_cast<std::streamsize>(cubin.image.size()));
  }
}

std::size_t read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {}).size();
}

std::string row_of(std::string_view what) { return fmt::format("{},\"what\":\"{}\"", bench::row("cache_file"), what); }

void report_times(const char* what, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  fmt::print("{},\"samples\":{},\"median_us\":{:.1f},\"p95_us\":{:.1f}}}\n", row_of(what), seconds.size(),
             1e6 * seconds[seconds.size() / 2], 1e6 * seconds[seconds.size() * 95 / 100]);
  std::fflush(stdout);
}

template <class Work>
std::vector<double> each_timed(const std::vector<std::int64_t>& numbers, Work&& work) {
  std::vector<double> seconds;
  for (const std::int64_t number : numbers) {
    const auto start = std::chrono::steady_clock::now();
    if (!work(number)) throw std::runtime_error(fmt::format("entry {} was not found", number));
    seconds.push_back(seconds_since(start));
  }
  return seconds;
}

/// Wall time and peak memory of one way to merge, in a process of its own. Returns the latter in MiB.
std::int64_t report_process(const char* what, const std::array<std::string, 3>& paths) {
  std::fflush(stdout);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "bench_cache_file", "--child", what, paths[0].c_str(), paths[1].c_str(), paths[2].c_str(),
          nullptr);
    _exit(127);
  }
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  if (status != 0) throw std::runtime_error(fmt::format("{} failed with status {}", what, status));
  fmt::print("{},\"seconds\":{:.2f},\"peak_mib\":{}}}\n", row_of(what), seconds_since(start), usage.ru_maxrss / 1024);
  return usage.ru_maxrss / 1024;
}

void merge_by_kiln(const fs::path& a, const fs::path& b, const fs::path& to) {
  const auto first = File::open(a, Access::read_only), second = File::open(b, Access::read_only);
  File* const files[] = {first.get(), second.get()};
  merge_files(files, to, {}, true);
}

/// As quick as SQL can do it, with nothing verified and no rule but "the first stays".
void merge_by_sql(const fs::path& a, const fs::path& b, const fs::path& to) {
  fs::remove(to);
  fs::copy_file(a, to);
  sqlite3* database = nullptr;
  const auto sql = fmt::format(
      "ATTACH '{}' AS b; BEGIN;"
      "CREATE TEMP TABLE fresh AS SELECT id, key FROM b.record WHERE key NOT IN (SELECT key FROM main.record);"
      "INSERT INTO main.record SELECT NULL, {} FROM b.record WHERE id IN (SELECT id FROM fresh);"
      "INSERT INTO main.choice SELECT main.record.id, {} FROM b.choice JOIN fresh ON fresh.id = b.choice.record "
      "JOIN main.record ON main.record.key = fresh.key;"
      "INSERT INTO main.candidate SELECT main.record.id, {} FROM b.candidate JOIN fresh ON fresh.id = b.candidate.record "
      "JOIN main.record ON main.record.key = fresh.key;"
      "CREATE TEMP TABLE code AS SELECT id, key FROM b.cubin WHERE key NOT IN (SELECT key FROM main.cubin);"
      "INSERT INTO main.cubin SELECT NULL, key, digest, op, source_digest, label, arch, compiler, name_expressions, lowered_names, "
      "image_bytes FROM b.cubin WHERE id IN (SELECT id FROM code);"
      "INSERT INTO main.image SELECT main.cubin.id, frame FROM b.image JOIN code ON code.id = b.image.cubin JOIN main.cubin ON "
      "main.cubin.key = code.key; COMMIT",
      b.string(),
      "key, op, revision, device_class, regime, bucket, baseline_ns, kiln_version, device_name, driver_version, strategy, "
      "unix_seconds, digest",
      "position, role, sizes, implementation, config, cost_ns, low_ns, high_ns, samples, source_digest, compiler",
      "position, implementation, config, sizes, verdict, reason, cost_ns, low_ns, high_ns, samples, registers, spill_bytes, "
      "baseline, b.candidate.digest");
  char* error = nullptr;
  if (sqlite3_open(to.c_str(), &database) != SQLITE_OK ||
      sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &error) != SQLITE_OK)
    throw std::runtime_error(error != nullptr ? error : "sqlite3_open failed");
  sqlite3_close(database);
}

int child(const std::string& what, const fs::path& a, const fs::path& b, const fs::path& to) {
  if (what == "merge") merge_by_kiln(a, b, to);
  if (what == "merge by plain SQL, nothing verified") merge_by_sql(a, b, to);
  return 0;
}

void check_merged(const fs::path& path, std::int64_t records) {
  const FileStats stats = File::open(path, Access::read_only)->stats();
  const std::int64_t expected = records * 3 / 4 + records;
  if (stats.records != expected || stats.cubins != expected)
    throw std::runtime_error(fmt::format("the merged file has {} records and {} cubins, expected {} of each",
                                         stats.records, stats.cubins, expected));
}

int measure(const fs::path& folder, const fs::path& cubins, std::int64_t records, std::int64_t most_mib) {
  const auto images = File::open(cubins, Access::read_only)->cubins();
  const fs::path a = folder / "a.kiln", b = folder / "b.kiln", c = folder / "c.kiln", bare = folder / "bare.kiln";
  make(a, 0, records, 1000, images);
  make(b, records * 3 / 4, records, 900, images);
  make_plain_files(folder / "plain", records, images);

  std::vector<std::int64_t> numbers(static_cast<std::size_t>(records));
  for (std::size_t at = 0; at < numbers.size(); ++at) numbers[at] = static_cast<std::int64_t>(at);
  std::shuffle(numbers.begin(), numbers.end(), std::mt19937_64(7));
  numbers.resize(std::min<std::size_t>(numbers.size(), 5000));
  for (const std::int64_t number : numbers) {  // every way finds the disk's pages in memory
    read_whole(plain_file(folder / "plain", number, ".json"));
    read_whole(plain_file(folder / "plain", number, ".cubin"));
  }
  read_whole(a);

  std::vector<double> opening;
  for (int time = 0; time < 21; ++time) {
    const auto start = std::chrono::steady_clock::now();
    File::open(a, Access::read_only);
    opening.push_back(seconds_since(start));
  }
  report_times("open a sealed base", opening);
  const auto base = File::open(a, Access::read_only);
  report_times("record and cubin, first look-up of each", each_timed(numbers, [&](std::int64_t number) {
                 return base->find_record(key_of(number)) && base->find_cubin(cubin_key(number));
               }));
  report_times("the same content from plain files, nothing verified", each_timed(numbers, [&](std::int64_t number) {
                 return read_whole(plain_file(folder / "plain", number, ".json")) > 0 &&
                        read_whole(plain_file(folder / "plain", number, ".cubin")) > 0;
               }));

  const std::int64_t merge_mib = report_process("merge", std::array{a.string(), b.string(), c.string()});
  check_merged(c, records);
  if (merge_mib > most_mib)
    throw std::runtime_error(fmt::format("the merge took {} MiB of memory, expected {} at most", merge_mib, most_mib));
  report_process("merge by plain SQL, nothing verified",
                 std::array{a.string(), b.string(), (folder / "d.kiln").string()});

  Selection without;
  without.cubins = false;
  export_file(*base, bare, without, true);
  without.candidates = false;
  export_file(*base, folder / "winners.kiln", without, true);
  const auto stats = base->stats();
  for (const auto& [what, path] :
       {std::pair("record with candidates and cubin", a), std::pair("record with candidates", bare),
        std::pair("record alone", folder / "winners.kiln")})
    fmt::print("{},\"bytes\":{}}}\n", row_of(what), static_cast<std::int64_t>(fs::file_size(path)) / records);
  fmt::print("{},\"bytes\":{},\"compressed\":{}}}\n", row_of("cubin"), stats.cubin_image_bytes / records,
             stats.cubin_bytes / records);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 6 && std::string_view(argv[1]) == "--child") return child(argv[2], argv[3], argv[4], argv[5]);
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_cache_file FOLDER CUBINS.kiln [RECORDS [MIB]]\n");
    return 2;
  }
  return measure(argv[1], argv[2], argc > 3 ? std::stoll(argv[3]) : 100000,
                 argc > 4 ? std::stoll(argv[4]) : std::numeric_limits<std::int64_t>::max());
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_cache_file: {}\n", error.what());
  return 1;
}
