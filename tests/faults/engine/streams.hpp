// Every command of the CLI with its standard streams closed, full or broken.
#pragma once

#include <map>
#include <span>

#include "faults/engine/fixture.hpp"

namespace kiln::faults {

/// Where a standard stream leads.
enum class Sink { file, closed, full, broken_pipe };

struct Streams {
  Sink output = Sink::file, errors = Sink::file;
  bool sigpipe_ignored = false;  // by who starts the command
};

std::string to_string(const Streams& streams);

struct Ended {
  int status = -1;             // 128 + N after signal N
  std::string output, errors;  // what reached a file
  std::string files;           // what lies in the folder, and the records of each .kiln file
};

/// One of them after the other, over all calls that give the same ones.
std::span<const Streams> in_turn(std::span<const Streams> all);

/// A command to try: `words` name the folder as @.
struct Line {
  std::string words;
  bool timed = false;  // its output holds times, so that no two runs agree
};

/// A folder with an overlay, a base, a workload, a trace and a key, as each run of a command finds it.
class CommandScene {
 public:
  CommandScene();
  /// Of the line by itself or with --json, from a fresh copy of the folder.
  [[nodiscard]] Ended run(const std::string& words, const Streams& streams) const;

 private:
  TemporaryFolder folder_;
};

/// By command ("cache ls"), what to try of it. Fails for a command that kiln --help lists and that has no line here.
const std::map<std::string, Line>& command_lines();

}  // namespace kiln::faults
