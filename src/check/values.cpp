#include "check/values.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::check {
namespace {

/// Nothing where a default has no value, which check_op_expressions() names.
std::optional<std::vector<std::int64_t>> frame_of(const manifest::Op& op, const Target& target,
                                                  const Problem& problem) try {
  return launch_frame({op, target.facts}, {}, problem);
} catch (const Error& error) {
  if (error.kind() != ErrorKind::bad_expression) throw;
  return std::nullopt;
}

/// The bytes of the tensors that every launch gives, without the gaps between rows.
struct Bytes {
  double outputs = 0, all = 0;
};

Bytes bytes_of(const manifest::Op& op, std::span<const std::int64_t> frame) {
  Bytes bytes;
  for (const manifest::Tensor& each : op.tensors) {
    if (each.optional || !manifest::Op::takes_part(each, frame)) continue;
    auto its = static_cast<double>(manifest::size_of(op.dtype_of(each, frame)));
    for (const manifest::Expression& size : each.shape) its *= static_cast<double>(size.evaluate(frame).number);
    bytes.all += its;
    if (each.output) bytes.outputs += its;
  }
  return bytes;
}

}  // namespace

void check_cost(const manifest::Op& op, const Lines& lines, const Target& target, Findings& findings) {
  const std::string file = manifest::shown_file(op, manifest::op_file);
  if (value_at(lines.op(), {"cost", "bytes"}) == nullptr) {
    findings.add({Severity::warning,
                  "cost",
                  file,
                  line_at(lines.op(), {"cost"}),
                  "no 'bytes' in [cost], so that estimates and reports take a launch to move nothing",
                  "give the least bytes that any implementation reads and writes",
                  {}});
    return;
  }
  for (const Problem& selections : allowed_selections(op)) {
    const Problem problem = at_size(op, selections, 1024);
    const auto frame = frame_of(op, target, problem);
    if (!frame) continue;
    const manifest::Value cost = op.cost_bytes.evaluate(*frame);
    const Bytes bytes = bytes_of(op, *frame);
    const auto least = std::max(bytes.outputs, bytes.all / 2);  // a part of an input may not be read, as by a mask
    if (!cost.ok() || cost.number < 0 || static_cast<double>(cost.number) >= least) continue;
    findings.add({Severity::warning, "cost", file, line_at(lines.op(), {"cost", "bytes"}),
                  fmt::format("'bytes' of [cost] is {}, and the tensors have {:.0f} bytes, the outputs {:.0f} of them",
                              cost.number, bytes.all, bytes.outputs),
                  "count bytes, by sizeof(TYPE), and not elements", text_of(op, problem, {}, target)});
  }
}

void check_verified(const manifest::Op& op, const Lines& lines, const Target& target, Findings& findings) {
  const auto frame = frame_of(op, target, at_size(op, allowed_selections(op).front(), 1024));
  if (!frame) return;
  const std::string file = manifest::shown_file(op, manifest::op_file);
  for (const manifest::Runtime& each : op.runtime) {
    const manifest::Line line = line_at(lines.op(), {"runtime", each.name});
    if (each.is_integer() || each.verify_real || findings.has(file, line, "unused_" + each.name)) continue;
    const char* value = "1e-5";
    if (each.default_real) {
      const auto is = [real = each.default_real->evaluate(*frame)](double number) { return real == number; };
      if (!is(0) && !is(1)) continue;
      value = is(0) ? "0" : "1";
    }
    findings.add({Severity::warning,
                  "verify",
                  file,
                  line,
                  fmt::format("a tune verifies with '{}' = {}, which hides whether a kernel uses it", each.name, value),
                  each.default_real ? "give it a 'verify', such as 0.7" : "give it a 'default' or a 'verify'",
                  {}});
  }
}

}  // namespace kiln::check
