// The ranks of a test, each in a process of its own.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
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

/// Forks a process for each call of begin(). What the process has to say, or the error that it ended with, comes back as a text.
class Ranks {
 public:
  Ranks() = default;
  ~Ranks() {
    for (const Process& each : processes_) {
      if (!each.ended) ::kill(each.id, SIGKILL);
      if (!each.ended) waitpid(each.id, nullptr, 0);
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
  /// All that process `index` said, once it has ended. A process that says nothing for 20 s fails the test.
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
    waitpid(processes_[index].id, nullptr, 0);
    processes_[index].ended = true;
  }
  [[nodiscard]] pid_t process(std::size_t index) const { return processes_[index].id; }

  /// In a process that was begun.
  static void say(char mark) { REQUIRE(write(speaking, &mark, 1) == 1); }

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
    static_cast<void>(!write(to, text.data(), text.size()));
  }
  std::optional<std::string> read_part(std::size_t index, std::size_t most = 4096) const {
    pollfd waiting{processes_[index].said, POLLIN, 0};
    REQUIRE(poll(&waiting, 1, 20'000) == 1);
    std::string part(most, '\0');
    const ssize_t count = read(processes_[index].said, part.data(), part.size());
    if (count <= 0) return std::nullopt;
    part.resize(static_cast<std::size_t>(count));
    return part;
  }

  inline static int speaking = -1;
  std::vector<Process> processes_;
};

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace kiln::test
