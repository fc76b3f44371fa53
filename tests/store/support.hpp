// A temporary folder for each test, sample rows, and child processes.
#pragma once

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include <sqlite3.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "kiln/error.hpp"
#include "store/file.hpp"

namespace kiln::store {

/// A temporary folder, removed at the end.
class Folder {
 public:
  Folder() {
    // Tests make thousands of commits with their syncs, so the folder is in memory where possible.
    const auto parent =
        access("/dev/shm", W_OK) == 0 ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
    std::string name = (parent / "kiln-store-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline Choice sample_choice(Role role, const std::string& sizes, const std::string& implementation,
                            const std::string& config, double cost_ns) {
  const bool is_library = implementation == "library";
  return {role,
          sizes,
          implementation,
          config,
          cost_ns,
          cost_ns * 0.99,
          cost_ns * 1.01,
          40,
          std::string(64, 'a'),
          is_library ? "library 13.0" : "nvrtc 13.0"};
}

/// Two choices of Role::fastest and one without_library. `cost_ns` is the cost at the bucket's upper edge.
inline Record sample_record(const std::string& key, double cost_ns = 1234.5) {
  Record record;
  record.key = key;
  record.op = "rms_norm";
  record.revision = 3;
  record.device_class = "sm_90/mp132";
  record.regime = "cold";
  record.bucket = "rows=512 cols=4096 dtype=bf16";
  record.baseline_ns = cost_ns * 1.5;
  record.provenance = {"0.1.0", "NVIDIA H200", 13000, "exhaustive", 1790000000};
  record.choices = {
      sample_choice(Role::fastest, "rows=257..384", "vectorized", "threads=256 vector=8", cost_ns * 0.75),
      sample_choice(Role::fastest, "rows=385..512", "library", "algorithm=7", cost_ns),
      sample_choice(Role::without_library, "rows=257..512", "vectorized", "threads=256 vector=8", cost_ns * 1.25)};
  record.candidates = {{"vectorized", "threads=256 vector=8", "rows=512", Verdict::ok, "", cost_ns, cost_ns * 0.99,
                        cost_ns * 1.01, 40, 32, 0, false},
                       {"vectorized", "threads=64 vector=2", "rows=512", Verdict::wrong_result, "y[3] is nan", 0, 0, 0,
                        0, 40, 16, true}};
  return record;
}

/// Sets the samples of each choice, which decide what a merge prefers.
inline Record with_samples(Record record, std::int64_t samples) {
  for (Choice& choice : record.choices) choice.samples = samples;
  return record;
}

inline manifest::Digest digest_named(const std::string& name) {
  return manifest::Hasher().field(std::string_view(name)).finish();
}

inline CubinRow sample_cubin(const std::string& name, std::size_t bytes = 3000) {
  CubinRow cubin;
  cubin.key = digest_named(name);
  cubin.op = "rms_norm";
  cubin.source_digest = std::string(64, 'a');
  cubin.label = "rms_norm " + name;
  cubin.arch = "sm_90a";
  cubin.compiler = "nvrtc 13.0";
  cubin.name_expressions = {"rms_norm<kiln::bf16, 256, 8>", "two"};
  cubin.lowered_names = {"_Z8rms_norm", "_Z3two"};
  for (std::size_t at = 0; at < bytes; ++at)
    cubin.image.push_back(static_cast<std::byte>((at * 31 + name.size()) % 251));
  return cubin;
}

inline bool same(const TriedCandidate& a, const TriedCandidate& b) {
  return a.implementation == b.implementation && a.config == b.config && a.sizes == b.sizes && a.verdict == b.verdict &&
         a.reason == b.reason && a.cost_ns == b.cost_ns && a.low_ns == b.low_ns && a.high_ns == b.high_ns &&
         a.samples == b.samples && a.registers == b.registers && a.spill_bytes == b.spill_bytes &&
         a.baseline == b.baseline;
}

inline bool same(const Choice& a, const Choice& b) {
  return a.role == b.role && a.sizes == b.sizes && a.implementation == b.implementation && a.config == b.config &&
         a.cost_ns == b.cost_ns && a.low_ns == b.low_ns && a.high_ns == b.high_ns && a.samples == b.samples &&
         a.source_digest == b.source_digest && a.compiler == b.compiler;
}

inline bool same(const Record& a, const Record& b) {
  const Provenance &p = a.provenance, &q = b.provenance;
  return a.key == b.key && a.op == b.op && a.revision == b.revision && a.device_class == b.device_class &&
         a.regime == b.regime && a.bucket == b.bucket && a.baseline_ns == b.baseline_ns &&
         p.kiln_version == q.kiln_version && p.device_name == q.device_name && p.driver_version == q.driver_version &&
         p.strategy == q.strategy && p.unix_seconds == q.unix_seconds &&
         std::equal(a.choices.begin(), a.choices.end(), b.choices.begin(), b.choices.end(),
                    [](const Choice& x, const Choice& y) { return same(x, y); }) &&
         std::equal(a.candidates.begin(), a.candidates.end(), b.candidates.begin(), b.candidates.end(),
                    [](const TriedCandidate& x, const TriedCandidate& y) { return same(x, y); });
}

inline bool same(const CubinRow& a, const CubinRow& b) {
  return a.key == b.key && a.op == b.op && a.source_digest == b.source_digest && a.label == b.label &&
         a.arch == b.arch && a.compiler == b.compiler && a.name_expressions == b.name_expressions &&
         a.lowered_names == b.lowered_names && a.image == b.image;
}

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Returns "KIND: MESSAGE" of the Error that `work` throws.
template <class Work>
std::string refusal(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return std::string(to_string(error.kind())) + ": " + error.what();
  }
  return "";
}

/// Uses SQLite directly, without Kiln's settings.
inline void run_sql(const std::filesystem::path& path, const std::string& sql) {
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  char* error = nullptr;
  const int code = sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &error);
  if (code != SQLITE_OK) MESSAGE(error);
  sqlite3_close(database);
  REQUIRE(code == SQLITE_OK);
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Runs `work` in a child; its exit status is 0 when it returns true.
template <class Work>
pid_t in_child(Work&& work) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    _exit(work() ? 0 : 1);
  } catch (const std::exception& error) {
    fprintf(stderr, "child: %s\n", error.what());
    _exit(2);
  }
}

inline int exit_status(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace kiln::store
