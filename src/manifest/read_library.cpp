// Reads [matmul] and [collective]: what a vendor library computes in place of kernels.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "manifest/manifest_parts.hpp"
#include "manifest/text.hpp"

namespace kiln::manifest {
namespace {

// The attributes that identify an algorithm of cuBLASLt.
constexpr std::array<std::string_view, 10> cublaslt_parameters = {
    "algorithm", "tile", "stages", "splits", "reduction", "swizzle", "custom", "inner", "cluster", "extra"};

struct MatmulReader {
  const ManifestReader& reader;
  const TomlValue& section;
  const Op& op;

  /// Returns the index of the tensor under the key, for which `suits` must hold; -1 when the key is absent.
  template <class Suits>
  int tensor(std::string_view key, std::string_view expected, const Suits& suits) const {
    const TomlValue* value = section.find(key);
    if (value == nullptr) return -1;
    std::vector<std::string> names;
    for (const Tensor& each : op.tensors) names.push_back(each.name);
    const std::size_t index = reader.one_of(*value, "a tensor of [matmul]", names);
    if (!suits(op.tensors[index]))
      reader.fail(value->line, fmt::format("{} as '{}' of [matmul]", quote(op.tensors[index].name), key), expected);
    return static_cast<int>(index);
  }
  [[nodiscard]] int dense(std::string_view key, std::size_t rank, bool output) const {
    const std::string expected =
        fmt::format("an {} of rank {} whose last stride is 1", output ? "output" : "input", rank);
    return tensor(key, expected, [&](const Tensor& each) {
      return each.shape.size() == rank && each.strides.back().constant_value() == 1 && each.output == output;
    });
  }
  /// Returns 3 when d has rank 3, else 2.
  [[nodiscard]] std::size_t rank() const {
    const TomlValue& value = reader.required(section, "[matmul]", "d");
    const auto d = std::ranges::find(op.tensors, value.text, &Tensor::name);
    return d != op.tensors.end() && d->shape.size() == 3 ? 3 : 2;
  }
  [[nodiscard]] int required_matrix(std::string_view key, bool output) const {
    static_cast<void>(reader.required(section, "[matmul]", key));
    return dense(key, rank(), output);
  }
  /// The outermost size of every tensor of rank 3 must be d's, the number of products.
  void check_batch(std::string_view key, int index, int d) const {
    if (index < 0 || rank() == 2) return;
    const auto batch = [&](int of) { return op.tensors[static_cast<std::size_t>(of)].shape.front().text(); };
    if (batch(index) != batch(d))
      reader.fail(section.find(key)->line,
                  fmt::format("'{}' of [matmul] as {} matrices where d is {}", key, batch(index), batch(d)),
                  "as many as d");
  }
  [[nodiscard]] int scale(std::string_view key) const {
    return tensor(key, "an input of f32",
                  [](const Tensor& each) { return each.selection < 0 && each.dtype == DType::f32 && !each.output; });
  }
  [[nodiscard]] int real(std::string_view key) const {
    const TomlValue* value = section.find(key);
    if (value == nullptr) return -1;
    std::vector<std::string> names;
    for (const Runtime& each : op.runtime) names.push_back(each.name);
    const std::size_t index = reader.one_of(*value, "a run-time value of [matmul]", names);
    if (op.runtime[index].type != RuntimeType::f32)
      reader.fail(value->line, fmt::format("{} as '{}' of [matmul]", quote(op.runtime[index].name), key),
                  "a run-time value of f32");
    return static_cast<int>(index);
  }
  [[nodiscard]] Expression expression(std::string_view key) const {
    const TomlValue* value = section.find(key);
    if (value == nullptr) return Expression::constant(0);
    return reader.expression(*value, quote(key) + " of [matmul]", op.symbols, op, Known::device);
  }
};

struct CollectiveReader {
  const ManifestReader& reader;
  const TomlValue& section;
  const Op& op;
  const Implementation& implementation;

  /// Reads the name of a workspace that a launch has to itself.
  [[nodiscard]] int workspace(std::string_view key, const TomlValue& value, std::size_t index) const {
    const Workspace& named = implementation.workspaces[index];
    if (named.symmetric)
      reader.fail(value.line, fmt::format("the symmetric workspace '{}' as '{}' of [collective]", named.name, key),
                  "a tensor, or a workspace that is not symmetric");
    return static_cast<int>(index);
  }

  /// Reads what the collective takes or gives whole: a workspace, or a tensor with dense rows. An optional output needs
  /// 'otherwise'.
  [[nodiscard]] Collective::Place place(std::string_view key, bool output) const {
    const TomlValue& value = reader.required(section, "[collective]", key);
    std::vector<std::string> names;
    for (const Tensor& each : op.tensors) names.push_back(each.name);
    for (const Workspace& each : implementation.workspaces) names.push_back(each.name);
    const std::size_t index = reader.one_of(
        value, implementation.workspaces.empty() ? "a tensor of [collective]" : "a tensor or workspace of [collective]",
        names);
    if (index >= op.tensors.size()) return {-1, workspace(key, value, index - op.tensors.size())};
    const Tensor& tensor = op.tensors[index];
    const TomlValue* const otherwise = output ? section.find("otherwise") : nullptr;
    const bool is_given = !tensor.optional && !tensor.when;
    if (tensor.output != output || (!is_given && otherwise == nullptr) || tensor.strides.back().constant_value() != 1)
      reader.fail(value.line, fmt::format("{} as '{}' of [collective]", quote(tensor.name), key),
                  fmt::format("an {} that every launch gives, whose last stride is 1", output ? "output" : "input"));
    return {static_cast<int>(index), -1};
  }

  /// Reads the workspace that stands in for an optional output.
  void read_otherwise(Collective::Place& output) const {
    const TomlValue* const value = section.find("otherwise");
    if (value == nullptr) return;
    if (output.tensor < 0 || !op.tensors[static_cast<std::size_t>(output.tensor)].optional)
      reader.fail(value->line, "'otherwise' of [collective] beside an output that every launch has",
                  "it beside an optional output");
    std::vector<std::string> names;
    for (const Workspace& each : implementation.workspaces) names.push_back(each.name);
    if (names.empty()) reader.fail(value->line, "'otherwise' of [collective]", "a workspace to name");
    output.workspace = workspace("otherwise", *value, reader.one_of(*value, "a workspace of [collective]", names));
  }

  /// The type of the tensors, of which there is at least one.
  [[nodiscard]] ElementType element(const Collective& collective) const {
    const auto tensor = [&](const Collective::Place& of) {
      return of.tensor < 0 ? nullptr : &op.tensors[static_cast<std::size_t>(of.tensor)];
    };
    const Tensor *const input = tensor(collective.input), *const output = tensor(collective.output);
    if (input == nullptr && output == nullptr)
      reader.fail(section.find("output")->line, "workspaces alone in [collective]",
                  "a tensor as 'input' or 'output', whose type is that of both");
    if (input != nullptr && output != nullptr &&
        (input->selection != output->selection || (input->selection < 0 && input->dtype != output->dtype)))
      reader.fail(
          section.find("output")->line,
          fmt::format("{} and {} of [collective] with types of their own", quote(input->name), quote(output->name)),
          "one type for both");
    return static_cast<const ElementType&>(input != nullptr ? *input : *output);
  }

  /// Where the collective stands among the passes, and that it takes or gives what the op does at the other end.
  [[nodiscard]] bool first(const Collective& collective) const {
    const TomlValue* const value = section.find("first");
    const bool first = reader.boolean_or(section, "first", false);
    if (value != nullptr && !implementation.has_kernels())
      reader.fail(value->line, "'first' of [collective] without a pass", "passes, before which it runs");
    if (first ? collective.input.tensor < 0 : collective.output.tensor < 0 || collective.output.workspace >= 0)
      reader.fail(section.find(first ? "input" : "output")->line,
                  fmt::format("a workspace as '{}' of a [collective] that runs {} the passes",
                              first ? "input" : "output", first ? "before" : "after"),
                  first ? "an input of the op" : "an output of the op, which every launch gives");
    return first;
  }
};

void read_collective(const ManifestReader& reader, const TomlValue& document, const Op& op,
                     Implementation& implementation) {
  const TomlValue& section = reader.required(document, "the file of a library", "collective");
  reader.check_keys(section, "[collective]", {"kind", "input", "output", "otherwise", "count", "first"});
  const std::vector<std::string> kinds = {"all_gather", "reduce_scatter",
                                          "all_reduce"};  // in the order of CollectiveKind
  Collective& collective = implementation.collective;
  collective.kind = static_cast<CollectiveKind>(
      reader.one_of(reader.required(section, "[collective]", "kind"), "the kind of [collective]", kinds));
  const CollectiveReader read{reader, section, op, implementation};
  collective.input = read.place("input", false);
  collective.output = read.place("output", true);
  read.read_otherwise(collective.output);
  collective.element = read.element(collective);
  collective.first = read.first(collective);
  collective.count = reader.expression(reader.required(section, "[collective]", "count"), "'count' of [collective]",
                                       op.symbols, op, Known::every_rank);
}

void read_matmul(const ManifestReader& reader, const TomlValue& document, const Op& op,
                 Implementation& implementation) {
  const TomlValue& library = *document.find("library");
  const TomlValue& section = reader.required(document, "the file of a library", "matmul");
  reader.check_keys(
      section, "[matmul]",
      {"a", "b", "c", "d", "bias", "a_scale", "b_scale", "alpha", "transpose_a", "transpose_b", "relu", "workspace"});
  const MatmulReader read{reader, section, op};
  Matmul& matmul = implementation.matmul;
  matmul.a = read.required_matrix("a", false);
  matmul.b = read.required_matrix("b", false);
  matmul.d = read.required_matrix("d", true);
  if (op.tensors[static_cast<std::size_t>(matmul.d)].optional)
    reader.fail(section.find("d")->line, "an optional output as 'd' of [matmul]", "one that each launch gives");
  matmul.c = read.dense("c", read.rank(), false);
  matmul.bias = read.dense("bias", read.rank() - 1, false);
  for (const auto& [key, tensor] : {std::pair("a", matmul.a), {"b", matmul.b}, {"c", matmul.c}, {"bias", matmul.bias}})
    read.check_batch(key, tensor, matmul.d);
  matmul.a_scale = read.scale("a_scale");
  matmul.b_scale = read.scale("b_scale");
  matmul.alpha = read.real("alpha");
  matmul.transpose_a = read.expression("transpose_a");
  matmul.transpose_b = read.expression("transpose_b");
  matmul.relu = read.expression("relu");
  matmul.workspace = read.expression("workspace");
  // Added after all expressions, so that none can use them.
  for (const std::string_view name : cublaslt_parameters) {
    check_free_name(reader, std::string(name), library.line, op, implementation.symbols);
    reader.add(implementation.symbols, {std::string(name), {}, {}}, library.line);
    implementation.parameters.push_back({std::string(name), {}, false});
    implementation.default_config.push_back(0);
  }
}

}  // namespace

void check_library(const ManifestReader& reader, const TomlValue& library, const Op& op,
                   const Implementation& implementation) {
  if (implementation.library != "cublaslt" && implementation.library != "nccl")
    reader.fail(library.line, fmt::format("the library {}", quote(implementation.library)), "'cublaslt' or 'nccl'");
  const bool is_of_team = op.is_of_team();
  if (implementation.is_collective() != is_of_team)
    reader.fail(library.line,
                fmt::format("the library {} in an op {} team axis", quote(implementation.library),
                            is_of_team ? "with a" : "without a"),
                is_of_team ? "'nccl' or kernels" : "'cublaslt' or kernels");
}

void read_library(const ManifestReader& reader, const TomlValue& document, const Op& op,
                  Implementation& implementation) {
  if (implementation.is_collective())
    read_collective(reader, document, op, implementation);
  else
    read_matmul(reader, document, op, implementation);
}

}  // namespace kiln::manifest
