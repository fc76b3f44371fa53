#include "tune/worker.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "kiln/error.hpp"
#include "tune/channel.hpp"
#include "tune/deploy.hpp"
#include "tune/worker_messages.hpp"

extern char** environ;

namespace kiln::tune {
namespace {

namespace fs = std::filesystem;

/// posix_spawn of `program` with one end of a socket pair as its standard input. Its standard output leads nowhere: kernels may
/// print. A process group of its own keeps Ctrl-C at the terminal from it; the caller decides when it ends.
pid_t spawn(const fs::path& program, int socket) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  std::string name = program.string();
  char* arguments[] = {name.data(), nullptr};
  pid_t child = 0;
  const int code = posix_spawn(&child, name.c_str(), &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) throw Error(ErrorKind::io, fmt::format("the worker {} cannot be run: {}", name, std::strerror(code)));
  return child;
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

fs::path folder_of_this_library() {
  static const int here = 0;
  Dl_info info{};
  return dladdr(&here, &info) != 0 && info.dli_fname != nullptr ? fs::path(info.dli_fname).parent_path() : fs::path();
}

}  // namespace

fs::path find_worker(const fs::path& chosen) {
  if (!chosen.empty()) return chosen;
  if (const char* named = std::getenv("KILN_WORKER"); named != nullptr && *named != '\0')
    return std::string_view(named) == "none" ? fs::path() : fs::path(named);
  std::error_code ignored;
  const fs::path library = folder_of_this_library();
  for (const fs::path& folder : {fs::read_symlink("/proc/self/exe", ignored).parent_path(), library, library / "../bin",
                                 library / "../../bin", fs::path(KILN_INSTALLED_PROGRAMS)}) {
    fs::path program = folder / "kiln-worker";
    if (!folder.empty() && access(program.c_str(), X_OK) == 0) return program;
  }
  return {};
}

struct Worker::State {
  State(fs::path found, WorkerPatience chosen) : program(std::move(found)), patience(chosen), owner(getpid()) {}

  void start() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw Error(ErrorKind::io, fmt::format("no socket for the worker: {}", std::strerror(errno)));
    const Channel theirs(ends[1]);
    channel.emplace(ends[0]);
    try {
      process = spawn(program, theirs.descriptor());
    } catch (const Error&) {
      channel.reset();
      throw;
    }
  }

  /// Ends it, and says how it had ended if it had.
  std::string stop() {
    channel.reset();
    if (process <= 0 || owner != getpid()) return {};
    int status = 0;
    // One that is ending by itself shuts its socket first: its own status tells more than the kill would.
    for (int waits = 0; waits < 20; ++waits) {
      if (waitpid(process, &status, WNOHANG) == process) {
        process = 0;
        return describe_end(status);
      }
      usleep(10'000);
    }
    kill(process, SIGKILL);
    waitpid(process, &status, 0);
    process = 0;
    return "was stopped";
  }

  fs::path program;
  WorkerPatience patience;
  pid_t owner;
  pid_t process = 0;
  std::optional<Channel> channel;
  bool has_bucket = false;
};

/// One bucket in the worker, and in the workers that follow it.
class RemoteBench final : public Bench {
 public:
  RemoteBench(Worker::State& worker, const BenchSettings& settings, const std::vector<store::CubinRow>& cubins)
      : worker_(worker), op_(settings.op.name), begin_(to_json(settings, cubins)) {
    worker_.has_bucket = false;
    begin();
  }

  TrialResult try_one(const Trial& trial) override {
    if (!worker_.has_bucket) begin();
    nlohmann::json answer;
    const auto state = worker_.channel->send(to_json(trial)) ? worker_.channel->receive(answer, worker_.patience.trial)
                                                             : Channel::State::closed;
    if (state == Channel::State::received) {
      try {
        rethrow(answer);
        return result_from_json(answer);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::driver_failed) throw;
        end();
        return rejected(error.what());
      } catch (const nlohmann::json::exception& error) {
        end();
        return rejected(fmt::format("the worker's answer cannot be read: {}", error.what()));
      }
    }
    const std::string how = end();
    if (state == Channel::State::late)
      return rejected(fmt::format("it was not done after {} s, and was stopped",
                                  std::chrono::duration<double>(worker_.patience.trial).count()));
    return rejected(fmt::format("the worker that tried it {}", how));
  }

 private:
  static TrialResult rejected(std::string reason) {
    TrialResult result;
    result.verdict = store::Verdict::launch_failed;
    result.reason = std::move(reason);
    return result;
  }

  std::string end() {
    worker_.has_bucket = false;
    return worker_.stop();
  }

  /// In the worker that there is; in a new one if there is none, or if it died since.
  void begin() {
    const bool fresh = !worker_.channel;
    if (fresh) worker_.start();
    nlohmann::json answer;
    const auto state = worker_.channel->send(begin_) ? worker_.channel->receive(answer, worker_.patience.begin)
                                                     : Channel::State::closed;
    if (state == Channel::State::received) {
      try {
        rethrow(answer);
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::driver_failed) end();
        throw;
      }
      worker_.has_bucket = answer.contains("ready");
      if (worker_.has_bucket) return;
    }
    const std::string how = end();
    if (!fresh && state == Channel::State::closed) return begin();
    throw Error(ErrorKind::driver_failed,
                fmt::format("{}: the worker {} {} before it was ready: it fills tensors and runs the reference first",
                            op_, worker_.program.string(), how));
  }

  Worker::State& worker_;
  std::string op_;
  nlohmann::json begin_;
};

Worker::Worker(fs::path program, WorkerPatience patience)
    : state_(std::make_unique<State>(std::move(program), patience)) {}

Worker::~Worker() { state_->stop(); }

std::unique_ptr<Bench> Worker::bench(const BenchSettings& settings, Cubins& cubins) {
  std::vector<store::CubinRow> rows;
  for (const jit::Specialisation& needed :
       verification(settings.op, settings.bucket, settings.device.facts, settings.arch))
    rows.push_back(to_row(needed, cubins.get(needed)));
  return std::make_unique<RemoteBench>(*state_, settings, rows);
}

}  // namespace kiln::tune
