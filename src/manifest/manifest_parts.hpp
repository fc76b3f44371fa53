// The parts of a manifest, each read by one function. Private to the sources that read manifests.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/manifest_reader.hpp"
#include "manifest/op.hpp"
#include "manifest/toml_document.hpp"

namespace kiln::manifest {

std::vector<Axis> read_axes(const ManifestReader& reader, const TomlValue& section);

/// [types] and [choices], in this order in the frame, added to what is there already.
void read_types(const ManifestReader& reader, const TomlValue& section, std::vector<Selection>& selections);
void read_choices(const ManifestReader& reader, const TomlValue& section, std::vector<Selection>& selections);

/// Names and types of [runtime]; read_runtime_expressions adds the rest once op.symbols is complete.
std::vector<Runtime> read_runtime(const ManifestReader& reader, const TomlValue& section);
void read_runtime_expressions(const ManifestReader& reader, const TomlValue& section, Op& op);
/// "f32" and its like, as run-time values and arguments name them.
RuntimeType read_runtime_type(const ManifestReader& reader, const TomlValue& value);

/// Need op.symbols, op.selections and op.runtime.
std::vector<Tensor> read_tensors(const ManifestReader& reader, const TomlValue& section, const Op& op);
/// A tolerance for each type that an output may have. `section` is null when the manifest has none.
std::map<DType, std::vector<Tolerance>> read_tolerance(const ManifestReader& reader, const TomlValue* section,
                                                       const Op& op);

/// [terms] of an implementation, which become names in `symbols` as they are read. Needs the parameters there.
void read_terms(const ManifestReader& reader, const TomlValue& section, const Op& op, Symbols& symbols);

/// The passes in `table`, which is [reference] or an implementation's file. Need all of the op but its implementations.
/// Only an implementation's pass may have a model.
std::vector<Pass> read_passes(const ManifestReader& reader, const TomlValue& table, std::string_view where,
                              const Op& op, const Symbols& symbols, std::span<const Workspace> workspaces);

/// [pass.model] of an implementation's pass.
PassModel read_pass_model(const ManifestReader& reader, const TomlValue& section, const Op& op, const Symbols& symbols);

/// What a manifest with `library` says besides: [matmul], and the library's own parameters.
void read_library(const ManifestReader& reader, const TomlValue& document, const Op& op,
                  Implementation& implementation);

Implementation read_implementation(const ManifestReader& reader, const TomlValue& document, std::string_view name,
                                   const Op& op);

/// The file name under `key`, which must be one of op.files.
std::string read_source(const ManifestReader& reader, const TomlValue& table, std::string_view otherwise, const Op& op);

/// Throws unless `name` is an identifier that no symbol, term, tensor or workspace of the op has.
void check_free_name(const ManifestReader& reader, const std::string& name, int line, const Op& op,
                     const Symbols& symbols, std::span<const Workspace> workspaces = {});
void check_count(const ManifestReader& reader, int line, std::size_t count, int limit, std::string_view what);

}  // namespace kiln::manifest
