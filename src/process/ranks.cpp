#include "process/ranks.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kiln/error.hpp"
#include "manifest/shortage.hpp"

namespace kiln::process {
namespace {

using Clock = std::chrono::steady_clock;

constexpr timespec poll_interval{0, 50'000'000};  // 50 ms

bool has_failed(int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; }

/// A shell makes background commands ignore SIGINT. An ignored signal stays ignored.
bool is_ignored(int signal) {
  struct sigaction present {};
  return sigaction(signal, nullptr, &present) == 0 && present.sa_handler == SIG_IGN;
}

}  // namespace

Ranks::Ranks(int count, std::chrono::milliseconds grace) : grace_(grace) {
  sigemptyset(&awaited_);
  signal(SIGCHLD, SIG_DFL);  // a launcher may have had it ignored: no status would be left
  for (const int each : {SIGCHLD, SIGINT, SIGTERM})
    if (!is_ignored(each)) sigaddset(&awaited_, each);
  pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
  for (int rank = 0; rank < count && !rank_; ++rank) begin(rank);
}

Ranks::~Ranks() {
  if (rank_) return;
  end_all();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Ranks::begin(int rank) {
  const pid_t parent = getpid(), child = fork();
  if (child == 0) return become(rank, parent);
  if (child > 0) return processes_.push_back({child});
  const int code = errno;
  end_all();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  throw Error(ErrorKind::io, fmt::format("rank {} cannot be begun: {}", rank, manifest::refusal_text(code)));
}

void Ranks::become(int rank, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // which ended before the line above
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);  // a terminal may stop what writes from another process group
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  rank_ = rank;
  processes_.clear();
}

bool Ranks::reap() {
  bool failed = false;
  for (Process& each : processes_) {
    if (each.id == 0 || waitpid(each.id, &each.status, WNOHANG) != each.id) continue;
    each.id = 0;
    failed = failed || has_failed(each.status);
  }
  return failed;
}

bool Ranks::is_any_left() const {
  return std::ranges::any_of(processes_, [](const Process& each) { return each.id != 0; });
}

void Ranks::tell(Process& process, int signal) {
  if (process.id == 0) return;
  process.was_told = true;
  kill(process.id, signal);
}

void Ranks::end_all() noexcept {
  for (Process& each : processes_) tell(each, SIGKILL);
  for (Process& each : processes_) {
    while (each.id != 0 && waitpid(each.id, &each.status, 0) < 0 && errno == EINTR) continue;
    each.id = 0;
  }
}

RanksEnd Ranks::wait() {
  std::optional<Clock::time_point> limit;
  while (is_any_left()) {
    siginfo_t info{};
    const int signal = sigtimedwait(&awaited_, &info, &poll_interval);
    if (reap() && !limit) limit = Clock::now() + grace_;
    if (signal == SIGINT || signal == SIGTERM) {
      if (was_interrupted_ || processes_.front().id == 0) end_all();
      was_interrupted_ = true;
      tell(processes_.front(), signal);
    }
    if (limit && Clock::now() >= *limit) end_all();
  }
  return end();
}

RanksEnd Ranks::end() const {
  RanksEnd all;
  all.was_interrupted = was_interrupted_;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    const auto& [id, status, was_told] = processes_[rank];
    if (all.status == 0) all.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (WIFSIGNALED(status) && !was_told && all.why.empty())
      all.why = fmt::format("rank {} was ended by signal {} ({})", rank, WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return all;
}

}  // namespace kiln::process
