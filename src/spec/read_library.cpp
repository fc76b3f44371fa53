// [matmul]: what a library of the vendor's computes in place of kernels.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "spec/manifest_parts.hpp"
#include "spec/text.hpp"

namespace kiln::spec {
namespace {

// An algorithm of cuBLASLt's is named by these of its attributes.
constexpr std::array<std::string_view, 10> cublaslt_parameters = {
    "algorithm", "tile", "stages", "splits", "reduction", "swizzle", "custom", "inner", "cluster", "extra"};

struct MatmulReader {
  const ManifestReader& reader;
  const TomlValue& section;
  const Op& op;

  [[nodiscard]] int tensor(const TomlValue& value, std::size_t rank, bool output) const {
    std::vector<std::string> names;
    for (const Tensor& each : op.tensors) names.push_back(each.name);
    const std::size_t index = reader.one_of(value, "a tensor of [matmul]", names);
    const Tensor& tensor = op.tensors[index];
    if (tensor.shape.size() != rank || tensor.strides.back().constant_value() != 1 || tensor.output != output ||
        tensor.initialised) {
      reader.fail(value.line, fmt::format("{} in [matmul]", quote(tensor.name)),
                  fmt::format("a tensor of rank {} whose last stride is 1, {}", rank,
                              output ? "that is only written" : "that is only read"));
    }
    return static_cast<int>(index);
  }
  [[nodiscard]] int matrix(std::string_view key, bool output) const {
    return tensor(reader.required(section, "[matmul]", key), 2, output);
  }
  [[nodiscard]] Expression expression(std::string_view key) const {
    const TomlValue* value = section.find(key);
    if (value == nullptr) return Expression::constant(0);
    return reader.expression(*value, quote(key) + " of [matmul]", op.symbols, op, Known::device);
  }
};

}  // namespace

void read_library(const ManifestReader& reader, const TomlValue& document, const Op& op,
                  Implementation& implementation) {
  const TomlValue& library = *document.find("library");
  if (implementation.library != "cublaslt")
    reader.fail(library.line, fmt::format("the library {}", quote(implementation.library)), "'cublaslt'");
  const TomlValue& section = reader.required(document, "the file of a library", "matmul");
  reader.check_keys(section, "[matmul]", {"a", "b", "d", "bias", "transpose_a", "transpose_b", "relu", "workspace"});
  const MatmulReader read{reader, section, op};
  Matmul& matmul = implementation.matmul;
  matmul.a = read.matrix("a", false);
  matmul.b = read.matrix("b", false);
  matmul.d = read.matrix("d", true);
  if (const TomlValue* bias = section.find("bias")) matmul.bias = read.tensor(*bias, 1, false);
  matmul.transpose_a = read.expression("transpose_a");
  matmul.transpose_b = read.expression("transpose_b");
  matmul.relu = read.expression("relu");
  matmul.workspace = read.expression("workspace");
  // After all expressions: none can be over an algorithm.
  for (const std::string_view name : cublaslt_parameters) {
    check_free_name(reader, std::string(name), library.line, op, implementation.symbols);
    reader.add(implementation.symbols, {std::string(name), {}, {}}, library.line);
    implementation.parameters.push_back({std::string(name), {}, false});
    implementation.default_config.push_back(0);
  }
}

}  // namespace kiln::spec
