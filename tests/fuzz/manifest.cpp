// An op.toml, an implementation, a problem and a part that the implementation may include, with lines of "%%" between
// them. What is read must behave as an op does:
// buckets hold their problems, search spaces are legal and bounded, kernel names hold nothing but names and numbers.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/kernel_name.hpp"
#include "manifest/key.hpp"
#include "manifest/op.hpp"
#include "manifest/variant.hpp"
#include "support.hpp"

namespace kiln::fuzz {
namespace {

manifest::DeviceFacts device() {
  manifest::DeviceFacts facts;
  facts.values = {90, 132, 232448, 233472, 65536, 2048, 62914560};
  facts.memory_bus_bits = 6144;
  return facts;
}

/// Cuts what stands before the next separator off the front.
std::string_view take_section(std::string_view& rest) {
  constexpr std::string_view separator = "\n%%\n";
  const std::size_t end = std::min(rest.size(), rest.find(separator));
  const std::string_view section = rest.substr(0, end);
  rest.remove_prefix(std::min(rest.size(), end + separator.size()));
  return section;
}

std::vector<manifest::Setting> settings(std::string_view text) {
  std::vector<manifest::Setting> result;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find_first_of(" \n"));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t sign = std::min(part.size(), part.find('='));
    result.push_back({std::string(part.substr(0, sign)), std::string(part.substr(std::min(part.size(), sign + 1)))});
  }
  return result;
}

void check_bucket(const manifest::Op& op, const manifest::Problem& problem) {
  const manifest::Problem bucket = bucket_of(op, problem), corner = low_corner(op, bucket);
  require(is_valid(op, bucket), "a bucket's upper edge is a legal problem");
  require(is_valid(op, corner), "a bucket's low corner is a legal problem");
  for (std::size_t axis = 0; axis < op.axes.size(); ++axis) {
    require(bucket.axes[axis] >= problem.axes[axis], "a bucket's edge is not below its problem");
    require(corner.axes[axis] <= problem.axes[axis], "a bucket's low corner is not above its problem");
  }
  require(bucket_of(op, bucket).axes == bucket.axes, "an upper edge is of its own bucket");
  require(bucket_of(op, corner).axes == bucket.axes, "a low corner is of its own bucket");
  require(!manifest::Bucket({op, device(), manifest::Regime::cold_l2}, bucket).key().empty(), "a bucket has a key");
}

void check_text(const manifest::Op& op, const manifest::Problem& problem) {
  const manifest::Problem read = make_problem(op, settings(to_string(op, problem)));
  require(read.axes == problem.axes && read.selections == problem.selections, "a problem reads back from its text");
}

void check_specialised(const manifest::Op& op, const manifest::Expression& expression,
                       const std::vector<std::int64_t>& frame) {
  const auto part = expression.specialise(frame, op.first_static());
  const manifest::Value whole = expression.evaluate(frame), got = part.evaluate(frame);
  require(whole.status == got.status && whole.number == got.number, "a plan's expression means what the op's does");
}

void check_names(const manifest::Op& op, std::span<const manifest::Pass> passes, const manifest::Symbols& symbols,
                 const std::vector<std::int64_t>& frame) try {
  for (const std::string& name : name_expressions(op, passes, symbols, frame))
    require(name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:<>, -") ==
                std::string::npos,
            "a kernel's name holds names and numbers only");
} catch (const Error& error) {
  require(error.kind() == ErrorKind::bad_manifest, "a name without a value is the manifest's fault", error.what());
}

void check_passes(const manifest::Op& op, std::span<const manifest::Pass> passes, const manifest::Symbols& symbols,
                  const std::vector<std::int64_t>& frame) {
  check_names(op, passes, symbols, frame);
  for (const manifest::Pass& pass : passes) {
    for (const auto* triple : {&pass.grid, &pass.block, &pass.cluster})
      for (const manifest::Expression& each : *triple) check_specialised(op, each, frame);
    check_specialised(op, pass.shared, frame);
    for (const manifest::Argument& argument : pass.arguments) {
      check_specialised(op, argument.value, frame);
      for (const manifest::Expression& each : argument.box) check_specialised(op, each, frame);
    }
  }
}

void check_space(const manifest::Op& op, const manifest::Implementation& implementation,
                 const manifest::Problem& problem) {
  std::size_t raw = 1;
  for (const manifest::Parameter& parameter : implementation.parameters) raw *= parameter.values.size();
  require(raw <= 16'000'000, "a search space is bounded");
  constexpr std::size_t worth_walking = 4096;  // an input may cost no seconds
  if (raw > worth_walking) return;
  const auto reason = why_not_eligible({op, device()}, implementation, problem);
  manifest::Implementation unsearched = implementation;
  unsearched.search.clear();
  const auto legal = search_space({op, device()}, unsearched, problem);
  require(legal.size() <= raw, "a search space holds each config once");
  if (!reason) require(!legal.empty(), "an eligible implementation has a config");
  for (const manifest::Config& config : search_space({op, device()}, implementation, problem))
    require(!manifest::Variant{&implementation, config}.broken_constraint({op, device()}, problem),
            "what is worth trying is legal");
  for (const manifest::Config& config : legal) {
    require(is_declared(implementation, config), "a legal config is declared");
    require(!manifest::Variant{&implementation, config}.broken_constraint({op, device()}, problem),
            "and breaks no constraint");
    require(parse_config(implementation, to_string(implementation, config)) == config, "and reads back from its text");
  }
}

void check_at(const manifest::Op& op, const manifest::Problem& problem) try {
  check_bucket(op, problem);
  check_text(op, problem);
  const auto frame = manifest::frame_of({op, device()}, problem);
  for (const manifest::Tensor& tensor : op.tensors) {
    for (const auto* sizes : {&tensor.shape, &tensor.strides})
      for (const manifest::Expression& each : *sizes) check_specialised(op, each, frame);
    const manifest::DType type = op.dtype_of(tensor, frame);
    require(manifest::size_of(type) > 0, "a tensor has a type");
    if (!tensor.output) require(!manifest::Op::is_initialised(tensor, frame), "only an output is read and written");
    require(op.tolerance_of(tensor, frame).relative < 1, "a tolerance tells something");
  }
  check_specialised(op, op.cost_bytes, frame);
  check_specialised(op, op.cost_flops, frame);
  check_passes(op, op.reference, op.symbols, frame);
  for (const manifest::Implementation& each : op.implementations) {
    require(is_declared(each, each.default_config), "a default is declared");
    check_space(op, each, problem);
    check_passes(op, each.passes, each.symbols, default_of(each).frame({op, device()}, problem));
  }
} catch (const Error& error) {
  require(error.kind() == ErrorKind::bad_expression, "only a run-time value's default may have no value here",
          error.what());
}

/// At the smallest, a middle and the largest sizes, and at the sizes given.
void check_op(const manifest::Op& op, std::string_view problem_text) {
  manifest::Problem smallest, middle, largest;
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    const manifest::Axis& axis = op.axes[i];
    const std::int64_t least = (axis.minimum - 1) / axis.multiple_of + 1, most = axis.maximum / axis.multiple_of;
    smallest.axes[i] = least * axis.multiple_of;
    middle.axes[i] = (least + (most - least) / 3) * axis.multiple_of;
    largest.axes[i] = axis.maximum;
  }
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    largest.selections[i] = static_cast<std::uint8_t>(op.selections[i].values.size() - 1);
  for (const manifest::Problem& problem : {smallest, middle, largest}) check_at(op, problem);
  try {
    check_at(op, make_problem(op, settings(problem_text)));
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::bad_input, "a problem that is none of the op's is bad input", error.what());
  }
}

}  // namespace
}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string op_text(fuzz::take_section(rest));
  const std::string implementation_text(fuzz::take_section(rest));
  const std::string problem_text(fuzz::take_section(rest));
  const std::vector<manifest::SourceFile> files = {{"op.toml", op_text},
                                                   {"fast.toml", implementation_text},
                                                   {"tile.part.toml", std::string(fuzz::take_section(rest))},
                                                   {"fast.cuh", "// fast"},
                                                   {"reference.cuh", "// reference"}};
  std::vector<manifest::Mistake> mistakes;
  static_cast<void>(manifest::parse_op("scale", "/ops/scale", files, mistakes));
  try {
    const manifest::Op op = manifest::parse_op("scale", "/ops/scale", files);
    fuzz::require(mistakes.empty(), "a manifest that holds has no mistakes", "");
    fuzz::check_op(op, problem_text);
  } catch (const Error& error) {
    fuzz::require(error.kind() == ErrorKind::bad_manifest, "a manifest that does not hold is refused as such",
                  error.what());
  }
  return 0;
}
