// Tells workloads, traces and files of records apart, so that a file of the wrong kind is answered by the command that
// takes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::cli {

enum class InputKind : std::uint8_t { workload, trace, json, other };

/// Judges by the first line that is neither empty nor a comment.
InputKind kind_of(std::string_view text);

/// Throw Error(bad_input) that says what the file is, what was expected and which command takes it. `name` as in
/// NAME:LINE messages.
[[noreturn]] void refuse_trace(const std::string& name);
[[noreturn]] void refuse_json(const std::string& name);
[[noreturn]] void refuse_workload(const std::string& name);
/// Throws likewise for a file whose name ends in .kiln or .jsonl. `expected` is "workload" or "trace".
void refuse_records(const std::string& path, std::string_view expected);

}  // namespace kiln::cli
