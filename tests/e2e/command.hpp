// The kiln command as a user runs it.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "e2e/engine_fixture.hpp"

namespace e2e {

struct Outcome {
  int status = -1;     // exit status
  std::string output;  // standard output and error
};

/// Runs a shell command line, in which `kiln` is this build's.
inline Outcome shell(const std::string& line) {
  Outcome outcome;
  const std::string whole = "kiln() { '" KILN_COMMAND "' \"$@\"; }; { " + line + "; } 2>&1 </dev/null";
  FILE* pipe = popen(whole.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> part{};
  while (const std::size_t read = fread(part.data(), 1, part.size(), pipe)) outcome.output.append(part.data(), read);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

/// The same, in a test that expects this exit status.
inline std::string expect(int status, const std::string& line) {
  const Outcome outcome = shell(line);
  CHECK_MESSAGE(outcome.status == status, line, "\n", outcome.output);
  return outcome.output;
}

/// The global option that gives the command a private overlay.
inline std::string own_overlay(const TemporaryFolder& folder, const char* overlay = "overlay.kiln") {
  return " --overlay " + (folder / overlay).string() + " ";
}

/// Those that give it the tests' ops.
inline std::string own_ops() {
  std::string words;
  for (const auto& path : test_ops()) words += " --templates " + path.string();
  return words + " ";
}

inline std::string globals(const TemporaryFolder& folder, const char* overlay = "overlay.kiln") {
  return own_overlay(folder, overlay) + own_ops();
}

/// Runs a test case that is skipped otherwise in a new process, with these words of the shell before it, such as variables;
/// the child's checks are this test's.
inline void run_child(const std::string& name, const std::string& variables) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string output = expect(0, variables + " '" + self + "' --no-skip '--test-case=" + name + "'");
  CHECK_MESSAGE(contains(output, "1 passed"), output);
}

inline std::string variable(const char* name, const std::filesystem::path& value) {
  return std::string(name) + "='" + value.string() + "' ";
}

/// What follows `name` in JSON, up to the next comma or quote.
inline std::string value_of(const std::string& json, const std::string& name) {
  const std::size_t at = json.find("\"" + name + "\":");
  REQUIRE_MESSAGE(at != std::string::npos, json);
  const std::size_t begin = json.find_first_not_of('"', at + name.size() + 3);
  return json.substr(begin, json.find_first_of(",\"}", begin) - begin);
}

}  // namespace e2e
