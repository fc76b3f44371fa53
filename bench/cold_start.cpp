// From the start of a process to its first correct result.
//
//   bench_cold_start [--runs N] [--large FILE.kiln]      N (30) fresh processes a way, the ways in turns
//
// Each child says when it reached its stages, counted from just before the parent asked for it. What a way costs beyond a context is its
// result against that of the way that only makes a context, fills the same tensors and copies one back. --large: a further base, such
// as bench_cache_file leaves behind. Files lie in the page cache: the first round is not counted. Google Benchmark does not fit: whole
// processes are timed.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cold/by_hand.hpp"
#include "cold/child.hpp"
#include "cold/norm_case.hpp"
#include "cold/stages.hpp"
#include "jit/specialisation.hpp"
#include "kiln/kiln.hpp"
#include "row.hpp"
#include "store/transfer.hpp"

extern char** environ;

namespace {

using namespace kiln::bench;
namespace fs = std::filesystem;
using Numbers = std::map<std::string, double>;

enum class Overlay : std::uint8_t { in_memory, kept, fresh };

struct Way {
  std::string name;
  Work work = Work::kiln;
  bool nvrtc = false;
  Overlay overlay = Overlay::in_memory;
  bool large = false;
  std::map<std::string, std::vector<double>> ms = {};  // by stage
  std::vector<double> page_faults = {};
  std::string failed = {};
};

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "kiln-cold-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw kiln::Error(kiln::ErrorKind::io, "no folder can be made in " + name);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path path;
};

std::string read_all(int descriptor) {
  std::string text;
  char part[4096];
  for (ssize_t bytes = 0; (bytes = read(descriptor, part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(bytes));
  close(descriptor);
  return text;
}

/// What a fresh process of this program printed, "NAME NUMBER" a line; nothing when it failed, for which it has said why.
std::optional<Numbers> spawn(std::vector<std::string> arguments, bool nvrtc) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw kiln::Error(kiln::ErrorKind::io, "no pipe can be made");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  nvrtc ? unsetenv("KILN_NVRTC_LIBRARY") : setenv("KILN_NVRTC_LIBRARY", "none", 1);
  arguments.insert(arguments.begin(), "bench_cold_start");
  arguments.insert(arguments.end(), {"--began", std::to_string(now_ns())});
  std::vector<char*> pointers;
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  const int code = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (code != 0) throw kiln::Error(kiln::ErrorKind::io, "this program cannot be run again");
  std::istringstream said(read_all(ends[0]));
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) return std::nullopt;
  Numbers numbers;
  std::string name;
  for (double number = 0; said >> name >> number;) numbers[name] = number;
  return numbers;
}

double percentile(std::vector<double> values, double of) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(of * static_cast<double>(values.size())))];
}

/// Tunes the one bucket that the children launch and exports it, sealed, as `folder`/shipped.kiln.
void make_shipped(const fs::path& folder) {
  kiln::Options options;
  options.overlay = folder / "tuned.kiln";
  options.search.trials = 4;
  const kiln::Engine engine(options);
  const kiln::Op op = engine.op("rms_norm");
  op.plan(op.problem({{"rows", norm_rows}, {"cols", norm_cols}, {"dtype", "bf16"}}));
  const auto tuned = kiln::store::File::open(*options.overlay, kiln::store::Access::read_only);
  kiln::store::export_file(*tuned, folder / "shipped.kiln", {}, true);
}

void start_once(Way& way, const Folder& folder, const std::string& large, bool counted) {
  std::vector<std::string> arguments = {"--child", std::to_string(static_cast<int>(way.work))};
  const auto add = [&](const char* option, const fs::path& value) {
    arguments.insert(arguments.end(), {option, value.string()});
  };
  if (way.work == Work::kiln) add("--base", folder.path / "shipped.kiln");
  if (way.large) add("--base", large);
  if (way.overlay == Overlay::kept) add("--overlay", folder.path / "kept" / "overlay.kiln");
  if (way.overlay == Overlay::fresh) {
    fs::remove_all(folder.path / "fresh");
    add("--overlay", folder.path / "fresh" / "overlay.kiln");
  }
  add("--cubin", folder.path / "plain.cubin");
  const auto stages = spawn(std::move(arguments), way.nvrtc);
  if (!stages) way.failed = "see standard error";
  if (!stages || !counted) return;
  for (const auto& [stage, ns] : *stages)
    if (stage != page_faults) way.ms[stage].push_back(ns / 1e6);
  if (const auto faults = stages->find(std::string(page_faults)); faults != stages->end())
    way.page_faults.push_back(faults->second);
}

void print(const Way& way, double context_ms) {
  fmt::print("{},\"way\":\"{}\"", bench::compiled_row("cold_start"), way.name);
  if (!way.failed.empty()) fmt::print(",\"failed\":\"{}\"", way.failed);
  if (way.failed.empty()) {
    const auto& all = way.ms.at("result");
    const double result = percentile(all, 0.5);
    fmt::print(
        ",\"runs\":{},\"result_ms\":{:.2f},\"result_best_ms\":{:.2f},\"result_p90_ms\":{:.2f},\"over_context_ms\":{:.2f}",
        all.size(), result, percentile(all, 0), percentile(all, 0.9), result - context_ms);
    for (const auto& [stage, ms] : way.ms)
      if (stage != "result") fmt::print(",\"until_{}_ms\":{:.2f}", stage, percentile(ms, 0.5));
    fmt::print(",\"page_faults\":{:.0f}", percentile(way.page_faults, 0.5));
  }
  fmt::print("}}\n");
  std::fflush(stdout);
}

void measure_starts(int runs, const std::string& large) {
  const Folder folder;
  std::vector<Way> ways = {
      {"context alone", Work::nothing},
      {"plain cubin, by hand", Work::cubin_by_hand},
      {"Kiln, shipped file, no overlay", Work::kiln},
      {"Kiln, shipped file, overlay", Work::kiln, false, Overlay::kept},
      {"Kiln, shipped file, overlay not made yet", Work::kiln, false, Overlay::fresh},
      {"Kiln, shipped file, overlay, NVRTC installed", Work::kiln, true, Overlay::kept},
      {"plain kernel through NVRTC, by hand", Work::nvrtc_by_hand, true},
      {"Kiln through NVRTC, nothing shipped", Work::kiln_compiling, true, Overlay::fresh},
  };
  if (!large.empty())
    ways.push_back({"Kiln, shipped file and a large one", Work::kiln, false, Overlay::in_memory, true});
  make_shipped(folder.path);
  {
    const kiln::cuda::Context context(0);
    const auto cubin = compile_by_hand(kiln::jit::default_arch(context.info().facts.sm()));
    std::FILE* file = std::fopen((folder.path / "plain.cubin").c_str(), "wb");
    if (file == nullptr) throw kiln::Error(kiln::ErrorKind::io, "plain.cubin cannot be written");
    std::fwrite(cubin.data(), 1, cubin.size(), file);
    std::fclose(file);
  }
  for (int round = -1; round < runs; ++round)
    for (Way& way : ways)
      if (way.failed.empty()) start_once(way, folder, large, round >= 0);
  const double context_ms = percentile(ways.front().ms.at("result"), 0.5);
  for (const Way& way : ways) print(way, context_ms);
}

int run(int argc, char** argv) {
  std::string large;
  bool is_child = false;
  ColdStart start;
  int runs = 30;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--runs")
      runs = std::stoi(value);
    else if (name == "--large")
      large = fs::absolute(value);
    else if (name == "--base")
      start.bases.emplace_back(value);
    else if (name == "--overlay")
      start.overlay = value;
    else if (name == "--cubin")
      start.cubin = value;
    else if (name == "--began")
      start.began_ns = std::stoll(value);
    else if (name == "--child")
      is_child = true;
    else
      throw kiln::Error(kiln::ErrorKind::bad_input, fmt::format("'{}' is no option", name));
    if (name == "--child") start.work = static_cast<Work>(std::stoi(value));
  }
  if (is_child)
    run_cold_start(start);
  else
    measure_starts(runs, large);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_cold_start: {}\n", error.what());
    return 3;
  }
}
