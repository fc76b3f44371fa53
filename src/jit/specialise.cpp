#include <fmt/format.h>

#include "jit/executable.hpp"
#include "manifest/kernel_name.hpp"

namespace kiln::jit {
namespace {

Specialisation make(const manifest::Op& op, std::span<const manifest::Pass> passes, const manifest::Symbols& symbols,
                    std::span<const std::int64_t> frame, std::string arch) {
  Specialisation specialisation;
  specialisation.op = op.name;
  specialisation.folder = op.folder;
  specialisation.files = op.files;
  specialisation.arch = std::move(arch);
  for (std::string& name : manifest::name_expressions(op, passes, symbols, frame))
    if (!name.empty()) specialisation.name_expressions.push_back(std::move(name));
  return specialisation;
}

/// Returns [matmul] of a manifest as text, without the workspace, which changes no result.
std::string product_of(const manifest::Op& op, const manifest::Matmul& matmul) {
  const auto tensor = [&](int index) {
    return index < 0 ? std::string_view("none") : std::string_view(op.tensors[static_cast<std::size_t>(index)].name);
  };
  const std::string_view alpha =
      matmul.alpha < 0 ? "1" : std::string_view(op.runtime[static_cast<std::size_t>(matmul.alpha)].name);
  return fmt::format("a={} b={} c={} d={} bias={} a_scale={} b_scale={} alpha={} transpose_a={} transpose_b={} relu={}",
                     tensor(matmul.a), tensor(matmul.b), tensor(matmul.c), tensor(matmul.d), tensor(matmul.bias),
                     tensor(matmul.a_scale), tensor(matmul.b_scale), alpha, matmul.transpose_a.text(),
                     matmul.transpose_b.text(), matmul.relu.text());
}

/// Returns [collective] of a manifest as text.
std::string exchange_of(const manifest::Op& op, const manifest::Implementation& implementation) {
  const manifest::Collective& collective = implementation.collective;
  const auto name = [&](const manifest::Collective::Place& of) {
    return std::string_view(of.tensor >= 0 ? op.tensors[static_cast<std::size_t>(of.tensor)].name
                                           : implementation.workspaces[static_cast<std::size_t>(of.workspace)].name);
  };
  return fmt::format("{}{} input={} output={} count={}", collective.first ? "first " : "", to_string(collective.kind),
                     name(collective.input), name(collective.output), collective.count.text());
}

}  // namespace

Specialisation specialise(const manifest::Op& op, const manifest::Implementation& implementation,
                          std::span<const std::int64_t> frame, std::string arch) {
  Specialisation specialisation = make(op, implementation.passes, implementation.symbols, frame, std::move(arch));
  const auto config = frame.subspan(static_cast<std::size_t>(op.first_parameter()));
  specialisation.label =
      fmt::format("{}/{} {}", op.name, implementation.name, manifest::to_string(implementation, config));
  if (implementation.is_library()) {
    specialisation.library = implementation.library;
    specialisation.library_product =
        implementation.is_collective() ? exchange_of(op, implementation) : product_of(op, implementation.matmul);
  }
  specialisation.entry = implementation.source;
  specialisation.options = implementation.options;
  specialisation.toolkit_headers = implementation.toolkit_headers;
  return specialisation;
}

Specialisation specialise(const manifest::Site& site, const manifest::Variant& variant, const Problem& at,
                          std::string arch) {
  return specialise(*site.op, *variant.implementation, variant.frame(site, at), std::move(arch));
}

Specialisation specialise_reference(const manifest::Op& op, std::span<const std::int64_t> frame, std::string arch) {
  Specialisation specialisation = make(op, op.reference, op.symbols, frame, std::move(arch));
  specialisation.label = op.name + "/reference";
  specialisation.entry = op.reference_source;
  specialisation.toolkit_headers = op.reference_toolkit_headers;
  return specialisation;
}

Specialisation specialise_prepare(const manifest::Op& op, std::span<const std::int64_t> frame, std::string arch) {
  const manifest::Prepare& prepare = op.prepare.value();
  Specialisation specialisation = make(op, prepare.passes, prepare.symbols, frame, std::move(arch));
  specialisation.label = op.name + "/prepare";
  specialisation.entry = prepare.source;
  specialisation.toolkit_headers = prepare.toolkit_headers;
  return specialisation;
}

}  // namespace kiln::jit
