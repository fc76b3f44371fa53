// The ranks of a test, each in a process of its own.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "team/environment.hpp"

namespace kiln::test {

inline constexpr std::chrono::milliseconds ample{15'000};

/// What no other test of this run or of another has.
inline std::string unique_name() {
  static int count = 0;
  return fmt::format("test {} {}", getpid(), count++);
}

/// Returns the processor time of a process and of all that it has started, those that have ended and were waited for included.
inline std::chrono::duration<double> processor_time(pid_t process) {
  std::map<pid_t, std::pair<pid_t, double>> all;  // parent and ticks of each
  std::error_code ended;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ended)) {
    const std::string number = entry.path().filename().string();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text;
    std::getline(file, text, '\0');      // nothing of a process that has just ended
    text.erase(0, text.rfind(')') + 1);  // the name may have spaces
    char state = 0;
    int parent = 0;
    unsigned long long user = 0, system = 0, user_of_ended = 0, system_of_ended = 0;
    if (sscanf(text.c_str(), " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu", &state, &parent, &user,
               &system, &user_of_ended, &system_of_ended) == 6)
      all[std::stoi(number)] = {parent, static_cast<double>(user + system + user_of_ended + system_of_ended)};
  }
  double ticks = 0;
  for (const auto& [each, facts] : all) {
    pid_t at = each;
    for (std::size_t steps = 0; at != process && all.contains(at) && steps < all.size(); ++steps) at = all[at].first;
    if (at == process) ticks += facts.second;
  }
  return std::chrono::duration<double>(ticks / static_cast<double>(sysconf(_SC_CLK_TCK)));
}

/// What a system call returns that no signal cut short.
template <class Call>
auto uncut(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Whether there is something to read, or the end of it, within that time.
inline bool is_readable(int from, std::chrono::milliseconds within) {
  const auto end = std::chrono::steady_clock::now() + within;
  pollfd waiting{from, POLLIN, 0};
  return uncut([&] {
           const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
           return poll(&waiting, 1, static_cast<int>(std::max(left.count(), std::int64_t{0})));
         }) == 1;
}

/// Forks a process for each call of begin(). What the process has to say, or the error that it ended with, comes back as a text.
class Ranks {
 public:
  Ranks() = default;
  ~Ranks() {
    for (const Process& each : processes_) {
      if (!each.ended) ::kill(each.id, SIGKILL);
      if (!each.ended) uncut([&] { return waitpid(each.id, nullptr, 0); });
      close(each.said);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void begin(const std::function<std::string()>& body) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t id = fork();
    REQUIRE(id >= 0);
    if (id == 0) {
      close(ends[0]);
      speak(ends[1], body);
      _exit(0);
    }
    close(ends[1]);
    processes_.push_back({id, ends[0], false});
  }
  /// As many as `world`, each given its rank.
  void begin_all(int world, const std::function<std::string(const team::Membership&)>& body) {
    for (int rank = 0; rank < world; ++rank) begin([&, rank] { return body({rank, world, name}); });
  }
  /// All that process `index` said, once it has ended. Silence fails the test after 20 s in which all ranks and what they started computed for
  /// less than one, as they do when they hang, and after 40 s of computing, as 20 s of two processors: on a busy machine it may last longer.
  std::string outcome(std::size_t index) {
    std::string text;
    while (auto part = read_part(index)) text += *part;
    return text;
  }
  /// Waits until process `index` has said `mark`, which it does by say().
  void await(std::size_t index, char mark) {
    const auto part = read_part(index, 1);
    REQUIRE(part.has_value());
    REQUIRE(part->front() == mark);
  }
  void kill(std::size_t index) {
    ::kill(processes_[index].id, SIGKILL);
    uncut([&] { return waitpid(processes_[index].id, nullptr, 0); });
    processes_[index].ended = true;
  }
  [[nodiscard]] pid_t process(std::size_t index) const { return processes_[index].id; }

  /// In a process that was begun.
  static void say(char mark) {
    REQUIRE(uncut([&] { return write(speaking, &mark, 1); }) == 1);
  }

  const std::string name = unique_name();

 private:
  struct Process {
    pid_t id;
    int said;
    bool ended;
  };

  static void speak(int to, const std::function<std::string()>& body) {
    speaking = to;
    std::string text;
    try {
      text = body();
    } catch (const std::exception& error) {
      text = error.what();
    }
    uncut([&] { return write(to, text.data(), text.size()); });
  }
  std::optional<std::string> read_part(std::size_t index, std::size_t most = 4096) const {
    const auto began = processor_time(getpid());
    for (auto before = began; !is_readable(processes_[index].said, std::chrono::seconds(20));) {
      const auto now = processor_time(getpid());
      REQUIRE_MESSAGE(now - before >= std::chrono::seconds(1), "the ranks hang");
      REQUIRE_MESSAGE(now - began < std::chrono::seconds(40), "the ranks compute without end");
      before = now;
    }
    std::string part(most, '\0');
    const ssize_t count = uncut([&] { return read(processes_[index].said, part.data(), part.size()); });
    if (count <= 0) return std::nullopt;
    part.resize(static_cast<std::size_t>(count));
    return part;
  }

  inline static int speaking = -1;
  std::vector<Process> processes_;
};

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace kiln::test
