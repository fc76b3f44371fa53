#include "process/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "kiln/error.hpp"
#include "process/limits.hpp"
#include "process/message.hpp"

extern char** environ;

namespace kiln::process {
namespace {

namespace fs = std::filesystem;

/// A worker greets as soon as it runs; this long only where the machine is very busy.
constexpr std::chrono::seconds greeting_limit{20};
constexpr const char* remedy =
    "name the kiln-worker that belongs to this Kiln in KILN_WORKER or Options::worker, or set KILN_WORKER=none to do "
    "without";

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
  if (code != 0)
    throw Error(ErrorKind::io, fmt::format("the worker {} cannot be run: {}; {}", name, std::strerror(code), remedy));
  return child;
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) == memory_limit_status) return "ran out of its memory limit";
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

Child::Child(const fs::path& program) : owner_(getpid()) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(ErrorKind::io, fmt::format("no socket for the worker: {}", std::strerror(errno)));
  channel_.emplace(ends[0]);
  {
    const Channel theirs(ends[1]);
    process_ = spawn(program, theirs.descriptor());
  }
  greet(program);
}

Child::~Child() { stop(); }

void Child::greet(const fs::path& program) {
  nlohmann::json said;
  const auto state = channel_->receive(said, greeting_limit);
  if (state == Channel::State::received && said == greeting()) return;
  const std::string how = stop();
  const std::string asked = fmt::format("the program {} was to be run as a worker, but it ", program.string());
  if (state == Channel::State::closed) throw Error(ErrorKind::io, fmt::format("{}{}; {}", asked, how, remedy));
  if (state == Channel::State::late)
    throw Error(ErrorKind::io, fmt::format("{}said nothing for {} s; {}", asked, greeting_limit.count(), remedy));
  throw Error(ErrorKind::io,
              fmt::format("{}greets as {}, not as {}; {}", asked, said.dump(), greeting().dump(), remedy));
}

Channel::State Child::ask(const nlohmann::json& message, nlohmann::json& answer, std::chrono::milliseconds patience) {
  return channel_ && channel_->send(message) ? channel_->receive(answer, patience) : Channel::State::closed;
}

bool Child::gone() const {
  if (!channel_) return true;
  pollfd socket{channel_->descriptor(), POLLIN, 0};
  return poll(&socket, 1, 0) != 0;  // nothing was asked, so what it may say is that it is closed
}

void Child::interrupt() noexcept {
  if (channel_) shutdown(channel_->descriptor(), SHUT_RDWR);
}

std::string Child::stop() {
  channel_.reset();
  if (process_ <= 0 || owner_ != getpid()) return {};
  const pid_t process = std::exchange(process_, 0);
  int status = 0;
  // One that is ending by itself shuts its socket first: its own status tells more than the kill would.
  for (int waits = 0; waits < 200; ++waits) {
    const pid_t ended = waitpid(process, &status, WNOHANG);
    if (ended == process) return describe_end(status);
    if (ended < 0 && errno == ECHILD) return "ended";  // the host process ignores or collects its children
    usleep(1'000);
  }
  kill(process, SIGKILL);
  waitpid(process, &status, 0);
  return "was stopped";
}

}  // namespace kiln::process
