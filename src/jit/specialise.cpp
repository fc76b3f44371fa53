#include <fmt/format.h>

#include <algorithm>

#include "jit/executable.hpp"

namespace kiln::jit {
namespace {

Specialisation make(const spec::Op& op, std::span<const spec::Pass> passes, const spec::Symbols& symbols,
                    std::span<const std::int64_t> frame, std::string arch) {
  Specialisation specialisation;
  specialisation.op = op.name;
  specialisation.folder = op.folder;
  specialisation.files = op.files;
  specialisation.arch = std::move(arch);
  for (std::string& name : spec::name_expressions(op, passes, symbols, frame))
    if (!name.empty()) specialisation.name_expressions.push_back(std::move(name));
  return specialisation;
}

}  // namespace

Specialisation specialise(const spec::Op& op, const spec::Implementation& implementation,
                          std::span<const std::int64_t> frame, std::string arch) {
  Specialisation specialisation = make(op, implementation.passes, implementation.symbols, frame, std::move(arch));
  const auto config = frame.subspan(static_cast<std::size_t>(op.first_parameter()));
  specialisation.label = fmt::format("{}/{} {}", op.name, implementation.name, spec::to_string(implementation, config));
  if (implementation.is_library()) {
    specialisation.library = implementation.library;
    const auto manifest = std::ranges::find(op.manifests, implementation.name + ".toml", &spec::SourceFile::name);
    if (manifest != op.manifests.end()) specialisation.library_manifest = manifest->text.str();
  }
  specialisation.entry = implementation.source;
  specialisation.options = implementation.options;
  specialisation.toolkit_headers = implementation.toolkit_headers;
  return specialisation;
}

Specialisation specialise_reference(const spec::Op& op, std::span<const std::int64_t> frame, std::string arch) {
  Specialisation specialisation = make(op, op.reference, op.symbols, frame, std::move(arch));
  specialisation.label = op.name + "/reference";
  specialisation.entry = op.reference_source;
  specialisation.toolkit_headers = op.reference_toolkit_headers;
  return specialisation;
}

}  // namespace kiln::jit
