// The option -o of each command that writes a file, and the one rule about what it may replace (docs/deployment.md):
// the same kind of file that loses no record and nothing that a person wrote into it, or anything that is a regular
// file with --replace.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/output.hpp"

namespace kiln::cli {

struct OutputChoice {
  std::string path;  // empty: none; "-": the standard output
  bool replace = false;
};

/// Adds -o and --replace.
CLI::Option* declare_output(CLI::App& command, OutputChoice& output, const std::string& summary,
                            const std::string& type_name);

enum class OutputKind : std::uint8_t {
  records,          // a sealed .kiln file
  text_of_records,  // .jsonl
  page,             // of kiln report
  trace,            // that kiln trace drew
  workload,         // that kiln workload wrote
};

/// For use before the work. Throws Error(bad_input) when the output exists and may not be replaced, whatever will be
/// written. The writers of .kiln files (Selection::must_lose_nothing) and write_text find out whether a record is lost.
void check_output(const OutputChoice& output, OutputKind kind);

/// For a file of --samples, to which tunes append. Throws Error(bad_input) when it exists and holds anything else, or
/// has the name of a .kiln file.
void check_samples(const std::string& path);

/// Checks the output by the rule, and writes as write_text of output.hpp does. A trace or a workload that goes to a
/// file gets its digest (text_digest.hpp).
void write_text(const OutputChoice& output, OutputKind kind, std::string_view text);

/// Says on the standard output what a file that was written holds: "FILE: WHAT", or with --json {"event": "written",
/// "file"} and `counts`, such as {"bytes": 512}. Says nothing of an output that goes to a stream.
void say_written(bool json, const OutputChoice& output, std::string_view what, const Json& counts);

}  // namespace kiln::cli
