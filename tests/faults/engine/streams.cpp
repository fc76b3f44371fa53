#include "faults/engine/streams.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <sstream>

namespace kiln::faults {
namespace {

void lead(int stream, Sink sink, const std::string& file) {
  int ends[2];
  int to = -1;
  switch (sink) {
    case Sink::file: to = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600); break;
    case Sink::full: to = open("/dev/full", O_WRONLY); break;
    case Sink::closed: close(stream); return;
    case Sink::broken_pipe:
      if (pipe(ends) != 0) _exit(126);
      close(ends[0]);
      to = ends[1];
      break;
  }
  if (to < 0 || dup2(to, stream) < 0) _exit(126);
  close(to);
}

int run_shell(const std::string& line, const Streams& streams, const fs::path& output, const fs::path& errors) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGPIPE, streams.sigpipe_ignored ? SIG_IGN : SIG_DFL);
    lead(STDOUT_FILENO, streams.output, output);
    lead(STDERR_FILENO, streams.errors, errors);
    execl("/bin/sh", "sh", "-c", ("exec </dev/null; exec " + line).c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string contents_of(const fs::path& folder) {
  std::set<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder);
    found.insert(name);
    if (entry.path().extension() != ".kiln") continue;
    for (const store::Record& record : records_of(entry.path())) found.insert(name + " holds " + record.key);
  }
  std::string text;
  for (const std::string& each : found) text += each + "\n";
  return text;
}

std::string read_if_there(const fs::path& path) { return fs::exists(path) ? read(path) : std::string(); }

/// The names under "Subcommands:" of a help.
std::vector<std::string> subcommands(const std::string& command) {
  std::istringstream help(expect(0, "kiln " + command + " --help"));
  std::vector<std::string> names;
  std::string line;
  while (std::getline(help, line) && line != "Subcommands:") {
  }
  while (std::getline(help, line) && line.starts_with("  ")) names.push_back(line.substr(2, line.find(' ', 2) - 2));
  return names;
}

std::vector<std::string> every_command() {
  std::vector<std::string> all;
  for (const std::string& name : subcommands("")) {
    const std::vector<std::string> within = subcommands(name);
    if (within.empty()) all.push_back(name);
    for (const std::string& each : within) all.push_back(name + " " + each);
  }
  return all;
}

}  // namespace

std::string to_string(const Streams& streams) {
  const auto name = [](Sink sink) {
    switch (sink) {
      case Sink::file: return "a file";
      case Sink::closed: return "closed";
      case Sink::full: return "full";
      case Sink::broken_pipe: return "a broken pipe";
    }
    return "unknown";
  };
  return std::string("output ") + name(streams.output) + ", errors " + name(streams.errors) +
         (streams.sigpipe_ignored ? ", SIGPIPE ignored" : "");
}

std::span<const Streams> in_turn(std::span<const Streams> all) {
  static std::map<const Streams*, std::size_t> next;
  return all.subspan(next[all.data()]++ % all.size(), 1);
}

CommandScene::CommandScene() {
  const fs::path fresh = folder_ / "fresh";
  fs::create_directories(fresh / "ops");
  fs::create_directories(fresh / "shared");
  fs::copy(fs::path(KILN_SOURCE_DIR) / "tests/e2e/ops/scale", fresh / "ops/scale");
  std::string tiled = read(fresh / "ops/scale/tiled.toml");
  const std::string threads = "threads = [64, 128, 256]";
  REQUIRE(tiled.find(threads) != std::string::npos);
  write(fresh / "ops/scale/tiled.toml", tiled.replace(tiled.find(threads), threads.size(), "threads = [64, 128]"));
  for (const char* name : {"overlay.kiln", "base.kiln"}) fs::copy_file(tuned_file(), fresh / name);
  write(fresh / "workload.toml",
        "[[workload]]\nop = \"scale\"\naxes = { rows = [32, 64], cols = 128 }\ntypes = { dtype = [\"f32\"] }\n");
  write(fresh / "config.json",
        "{\"model_type\": \"vit\", \"hidden_size\": 64, \"intermediate_size\": 128, \"num_attention_heads\": 2, "
        "\"image_size\": 32, \"patch_size\": 16}\n");
  write(fresh / "trace", "scale rows=64 cols=128 dtype=f32\nscale rows=60 cols=128 dtype=f32\n");
  expect(0, "openssl genpkey -algorithm ed25519 -out " + (fresh / "key.pem").string());
  fs::permissions(fresh / "key.pem", fs::perms(0600));
}

Ended CommandScene::run(const std::string& words, const Streams& streams) const {
  const fs::path at = folder_ / "at";
  fs::remove_all(at);
  fs::copy(folder_ / "fresh", at, fs::copy_options::recursive);
  std::string line = "env KILN_CACHE=@/overlay.kiln '" KILN_COMMAND "' " + words;
  const auto begins = [&](const char* command) { return words.starts_with(command); };
  constexpr const char* without_ops[] = {"devices",      "new",           "cache import", "cache merge",
                                         "cache verify", "cache compact", "cache sign"};
  if (std::none_of(std::begin(without_ops), std::end(without_ops), begins)) line += " --templates @/ops";
  for (std::size_t found = 0; (found = line.find('@')) != std::string::npos;) line.replace(found, 1, at.string());
  Ended ended;
  ended.status = run_shell(line, streams, folder_ / "output", folder_ / "errors");
  if (streams.output == Sink::file) ended.output = read_if_there(folder_ / "output");
  if (streams.errors == Sink::file) ended.errors = read_if_there(folder_ / "errors");
  ended.files = contents_of(at);
  return ended;
}

const std::map<std::string, Line>& command_lines() {
  static const std::map<std::string, Line> all = {
      {"doctor", {"doctor", true}},
      {"devices", {"devices", true}},
      {"ops", {"ops scale"}},
      {"check", {"check scale --no-compile"}},
      {"new", {"new mine @/ops"}},
      {"tune", {"tune scale rows=32 cols=128 dtype=f32", true}},
      {"prewarm", {"prewarm @/workload.toml -o @/deployed.kiln", true}},
      {"coverage", {"coverage @/workload.toml"}},
      {"run", {"run scale rows=64 cols=128 dtype=f32", true}},
      {"explain", {"explain scale rows=64 cols=128 dtype=f32"}},
      {"replay", {"replay @/trace", true}},
      {"workload", {"workload --config @/config.json"}},
      {"trace", {"trace scale rows=1..64 cols=128 dtype=f32 --count 5"}},
      {"report", {"report -o @/page.html"}},
      {"bench records", {"bench records", true}},
      {"bench regret", {"bench regret scale rows=60..64 cols=128 dtype=f32 --base @/base.kiln", true}},
      {"cache ls", {"cache ls"}},
      {"cache show", {"cache show scale"}},
      {"cache stats", {"cache stats"}},
      {"cache diff", {"cache diff @/overlay.kiln @/base.kiln"}},
      {"cache export", {"cache export --text"}},
      {"cache import", {"cache import @/base.kiln"}},
      {"cache merge", {"cache merge @/base.kiln @/overlay.kiln -o @/merged.kiln"}},
      {"cache prune", {"cache prune --unused 90d"}},
      {"cache compact", {"cache compact", true}},
      {"cache verify", {"cache verify @/base.kiln"}},
      {"cache sign", {"cache sign @/base.kiln --key @/key.pem"}},
      {"cache push", {"cache push --remote @/shared"}},
      {"cache pull", {"cache pull --remote @/shared"}},
  };
  for (const std::string& command : every_command())
    CHECK_MESSAGE(all.count(command) == 1, "tests/faults/engine/streams.cpp has no line for kiln ", command);
  return all;
}

}  // namespace kiln::faults
