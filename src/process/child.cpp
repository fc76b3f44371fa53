#include "process/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "kiln/error.hpp"
#include "manifest/environment.hpp"
#include "manifest/ownership.hpp"
#include "manifest/shortage.hpp"
#include "process/files.hpp"
#include "process/identity.hpp"
#include "process/message.hpp"
#include "process/setup.hpp"

extern char** environ;

namespace kiln::process {
namespace {

namespace fs = std::filesystem;

/// A worker greets within milliseconds; only a very busy machine needs longer.
constexpr std::chrono::seconds greeting_limit{20};
constexpr int most_starts = 3;           // of a worker that somebody kills
constexpr std::size_t most_shown = 200;  // bytes of a greeting
constexpr const char* remedy =
    "name the kiln-worker that belongs to this Kiln in KILN_WORKER or Options::worker, or set KILN_WORKER=none to do "
    "without";

/// Spawns `program` with one end of a socket pair as its standard input. Its standard output is /dev/null, because
/// kernels may print. Its own process group keeps Ctrl-C at the terminal from it: the caller decides when it ends.
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
  std::vector<char*> environment = worker_environment(environ, manifest::has_raised_rights());
  const int code = posix_spawn(&child, name.c_str(), &actions, &attributes, arguments, environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (manifest::is_shortage(code))
    throw Refused(fmt::format("the worker {} cannot be run: {}", name, manifest::refusal_text(code)));
  if (code != 0)
    throw Error(ErrorKind::io, fmt::format("the worker {} cannot be run: {}; {}", name, std::strerror(code), remedy));
  return child;
}

/// Returns why a worker that says what it was built of does not serve here; empty where it does, or says nothing.
std::string difference_of(const fs::path& program) {
  const std::string theirs = identity_of(program);
  if (theirs.empty() || theirs == identity()) return {};
  return fmt::format("it is of Kiln {}, and this library of {}; install the kiln-worker of this library", theirs,
                     identity());
}

/// Some tools that unpack wheels and images lose modes.
std::string execution_objection(const fs::path& program) {
  if (access(program.c_str(), X_OK) == 0) return {};
  return fmt::format("it cannot be executed: {}; run chmod a+x, or mount its file system without noexec",
                     std::strerror(errno));
}

std::string trust_objection(const fs::path& program, uid_t library_owner) {
  std::string objection = manifest::program_objection(program, library_owner);
  if (objection.empty()) objection = difference_of(program);
  return objection.empty() ? objection : objection + "; or name it in KILN_WORKER or Options::worker";
}

uid_t owner_of(const fs::path& file) {
  struct stat status {};
  return stat(file.c_str(), &status) == 0 ? status.st_uid : 0;
}

bool is_from_outside(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) == memory_limit_status) return "ran out of its memory limit";
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

FoundWorker look_for_worker(const fs::path& chosen) {
  if (!chosen.empty()) return {chosen, {}};
  if (const std::string named = manifest::environment("KILN_WORKER"); !named.empty())
    return {named == "none" ? fs::path() : fs::path(named), {}};
  const fs::path library = file_of_this_library();
  FoundWorker found;
  for (const fs::path& program : worker_places(library, running_program())) {
    if (!program.is_absolute() || access(program.c_str(), F_OK) != 0) continue;
    std::string objection = execution_objection(program);
    if (objection.empty()) objection = trust_objection(program, owner_of(library));
    if (objection.empty()) {
      found.program = program;
      return found;
    }
    std::string warning = fmt::format("'{}' is not run: {}", program.string(), objection);
    if (std::ranges::find(found.refused, warning) == found.refused.end()) found.refused.push_back(std::move(warning));
  }
  return found;
}

std::vector<fs::path> worker_places(const fs::path& library, const fs::path& program) {
  const fs::path from_library = library.parent_path(), from_program = program.parent_path();
  std::vector<fs::path> places;
  for (const fs::path& folder : {from_library, from_library / KILN_WORKER_FROM_LIBRARY, from_program,
                                 from_program / KILN_WORKER_FROM_PROGRAMS, fs::path(KILN_INSTALLED_WORKERS)})
    places.push_back((folder / "kiln-worker").lexically_normal());
  return places;
}

std::vector<char*> worker_environment(char** all, bool has_raised_rights) {
  std::vector<char*> kept;
  for (; *all != nullptr; ++all) {
    const std::string_view variable = *all;
    if (!has_raised_rights || variable.starts_with("CUDA_VISIBLE_DEVICES=") ||
        variable.starts_with("CUDA_DEVICE_ORDER="))
      kept.push_back(*all);
  }
  kept.push_back(nullptr);
  return kept;
}

Child::Child(const fs::path& program) : owner_(getpid()) {
  for (int left = most_starts; left > 0; --left) {
    begin(program);
    if (greet(program, left > 1)) return;
  }
}

void Child::begin(const fs::path& program) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Refused(fmt::format("there is no socket for a worker: {}", manifest::refusal_text(errno)));
  channel_.emplace(ends[0]);
  {
    const Channel theirs(ends[1]);
    process_ = spawn(program, theirs.descriptor());
  }
}

Child::~Child() { stop(); }

bool Child::greet(const fs::path& program, bool may_try_again) {
  nlohmann::json said;
  const auto state = channel_->receive(said, greeting_limit);
  if (state == Channel::Outcome::received && said == greeting()) return true;
  const std::string how = stop();
  if (may_try_again && std::exchange(was_killed_, false)) return false;
  const std::string asked = fmt::format("the program {} was to be run as a worker, but it ", program.string());
  if (state == Channel::Outcome::closed) throw Error(ErrorKind::io, fmt::format("{}{}; {}", asked, how, remedy));
  if (state == Channel::Outcome::unreadable)
    throw Error(ErrorKind::io, fmt::format("{}sent what is no greeting; {}", asked, remedy));
  if (state == Channel::Outcome::late)
    throw Error(ErrorKind::io, fmt::format("{}said nothing for {} s; {}", asked, greeting_limit.count(), remedy));
  const std::string shown = said.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, most_shown);
  throw Error(ErrorKind::io, fmt::format("{}greets as {}, not as {}; {}", asked, shown, greeting().dump(), remedy));
}

Channel::Outcome Child::ask(const nlohmann::json& message, nlohmann::json& answer, std::chrono::milliseconds timeout) {
  return channel_ ? channel_->ask(message, answer, timeout) : Channel::Outcome::closed;
}

bool Child::gone() const {
  if (!channel_) return true;
  pollfd socket{channel_->descriptor(), POLLIN, 0};
  return poll(&socket, 1, 0) != 0;  // no request is open, so the only event is that the socket closed
}

void Child::interrupt() noexcept {
  if (channel_) shutdown(channel_->descriptor(), SHUT_RDWR);
}

std::string Child::stop() {
  channel_.reset();
  if (process_ <= 0 || owner_ != getpid()) return {};
  const pid_t process = std::exchange(process_, 0);
  int status = 0;
  // A process that ends by itself closes its socket first; its own exit status says more than a kill would.
  for (int waits = 0; waits < 200; ++waits) {
    const pid_t ended = waitpid(process, &status, WNOHANG);
    if (ended == process) {
      was_killed_ = WIFSIGNALED(status) && is_from_outside(WTERMSIG(status));
      return describe_end(status);
    }
    if (ended < 0 && errno == ECHILD) return "ended";  // the parent ignores SIGCHLD, or reaps its children elsewhere
    usleep(1'000);
  }
  kill(process, SIGKILL);
  waitpid(process, &status, 0);
  return "was stopped";
}

}  // namespace kiln::process
