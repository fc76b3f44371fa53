// Reads [prepare]: the cases of structured inputs, and the passes that write them.
#include <fmt/format.h>

#include <algorithm>

#include "manifest/manifest_parts.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

constexpr std::size_t most_cases = 16;  // each is verified with every candidate

std::vector<std::string> read_cases(const ManifestReader& reader, const TomlValue& value) {
  std::vector<std::string> cases;
  for (const TomlValue& each : reader.list(value, "'cases'")) {
    const std::string& word = reader.text(each, "a case");
    if (!is_identifier(word)) reader.fail(each.line, fmt::format("{} as a case", quote(word)), name_rule());
    if (std::ranges::find(cases, word) != cases.end())
      reader.fail(each.line, fmt::format("the case {} a second time", quote(word)), "each once");
    cases.push_back(word);
  }
  if (cases.empty() || cases.size() > most_cases)
    reader.fail(value.line, fmt::format("{} entries in 'cases'", cases.size()), fmt::format("1 to {}", most_cases));
  return cases;
}

/// Returns the first case when `value` is null.
std::vector<std::size_t> read_timed(const ManifestReader& reader, const TomlValue* value,
                                    const std::vector<std::string>& cases) {
  if (value == nullptr) return {0};
  std::vector<std::size_t> timed;
  for (const TomlValue& each : reader.list(*value, "'timed'")) {
    const std::size_t which = reader.one_of(each, "a timed case", cases);
    if (std::ranges::find(timed, which) != timed.end())
      reader.fail(each.line, fmt::format("{} twice in 'timed'", quote(each.text)), "each once");
    timed.push_back(which);
  }
  if (timed.empty()) reader.fail(value->line, "no case in 'timed'", "one or more of 'cases'");
  return timed;
}

/// A seed that names a kernel or leaves a pass out would need a compile for each seed.
void check_seed(const ManifestReader& reader, const Prepare& prepare, int seed) {
  for (const Pass& pass : prepare.passes) {
    if (pass.kernel.empty()) continue;  // it could not be read, which has been told
    const bool is_named =
        std::ranges::any_of(pass.name.placeholders, [seed](const Expression& each) { return each.uses(seed); });
    if (is_named || (pass.when && pass.when->uses(seed)))
      reader.fail(pass.line, "'seed' in the kernel name or 'when' of a pass", "'seed' in 'args' alone");
  }
}

/// Outputs are poisoned before each launch, so nothing may be prepared there.
void check_tensors(const ManifestReader& reader, const Op& op, const Prepare& prepare, const Line& line) {
  std::vector<bool> given(op.tensors.size(), false);
  for (const Pass& pass : prepare.passes)
    each_argument(pass.arguments, [&](const Argument& argument) {
      if (argument.kind != ArgumentKind::tensor && argument.kind != ArgumentKind::view &&
          argument.kind != ArgumentKind::tensor_map)
        return;
      const Tensor& tensor = op.tensors[static_cast<std::size_t>(argument.index)];
      if (tensor.output)
        reader.fail(pass.line, fmt::format("the output '{}' in a pass of [prepare]", tensor.name), "inputs alone");
      if (tensor.per_rank)
        reader.fail(pass.line, fmt::format("'{}' with per_rank = true in a pass of [prepare]", tensor.name),
                    "inputs that are equal on all ranks");
      given[static_cast<std::size_t>(argument.index)] = true;
    });
  for (std::size_t i = 0; i < op.tensors.size(); ++i)
    if (op.tensors[i].fill == Fill::prepared && !given[i])
      reader.fail(line, fmt::format("no pass of [prepare] with '{}' in 'args'", op.tensors[i].name),
                  "one, for its fill is \"prepared\"");
}

}  // namespace

std::optional<Prepare> read_prepare(const ManifestReader& reader, const TomlValue* section, const Op& op) {
  const auto prepared = std::ranges::find(op.tensors, Fill::prepared, &Tensor::fill);
  if (section == nullptr && prepared == op.tensors.end()) return std::nullopt;
  if (section == nullptr)
    reader.fail(1, fmt::format("fill = \"prepared\" on '{}' without [prepare]", prepared->name), "[prepare]");
  if (prepared == op.tensors.end() && !reader.has_mistakes())
    reader.fail(section->line, "[prepare] without a tensor that it fills", "fill = \"prepared\" on one or more");
  reader.check_keys(*section, prepare_section, {"source", "toolkit_headers", "cases", "timed", "pass"});
  Prepare prepare;
  reader.attempt([&] { prepare.source = read_source(reader, *section, "prepare.cuh", op); });
  reader.attempt([&] { prepare.toolkit_headers = reader.boolean_or(*section, "toolkit_headers", false); });
  prepare.cases = read_cases(reader, reader.required(*section, prepare_section, "cases"));
  reader.attempt([&] { prepare.timed = read_timed(reader, section->find("timed"), prepare.cases); });
  prepare.symbols = op.symbols;
  const int seed = reader.add(prepare.symbols, {std::string(seed_name), {}, {}}, section->line);
  reader.add(prepare.symbols, {std::string(case_name), prepare.cases, {}}, section->line);
  prepare.passes = read_passes(reader, *section, prepare_section, op, prepare.symbols, {});
  if (reader.has_mistakes()) return prepare;
  reader.attempt([&] { check_seed(reader, prepare, seed); });
  reader.attempt([&] { check_tensors(reader, op, prepare, section->line); });
  return prepare;
}

}  // namespace kiln::manifest
