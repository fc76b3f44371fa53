// One function for each part of a manifest. Private to the sources that read manifests.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/manifest_reader.hpp"
#include "manifest/op.hpp"
#include "manifest/toml_document.hpp"

namespace kiln::manifest {

inline constexpr std::string_view prepare_section = "[prepare]";
inline constexpr std::string_view seed_name = "seed", case_name = "case";  // names that [prepare] adds to the op's

/// Reads all of [axes] but conditions of buckets. read_policy_conditions reads those once op.symbols is complete.
std::vector<Axis> read_axes(const ManifestReader& reader, const TomlValue& section);
void read_policy_conditions(const ManifestReader& reader, const TomlValue& section, Op& op);
/// Reads an expression over types and choices alone. `instead`, which may be empty, says where device facts may stand.
Expression read_condition(const ManifestReader& reader, const TomlValue& value, std::string_view what,
                          std::string_view instead, const Op& op);

/// Append the selections of [types] and of [choices]; the frame has them in this order.
void read_types(const ManifestReader& reader, const TomlValue& section, std::vector<Selection>& selections);
void read_choices(const ManifestReader& reader, const TomlValue& section, std::vector<Selection>& selections);

/// Reads names and types of [runtime]. read_runtime_expressions reads the rest once op.symbols is complete.
std::vector<Runtime> read_runtime(const ManifestReader& reader, const TomlValue& section,
                                  const std::vector<Axis>& axes);
void read_runtime_expressions(const ManifestReader& reader, const TomlValue& section, Op& op);
/// Reads what the table of run-time value `index` says of its default, bounds and verification.
void read_bounds(const ManifestReader& reader, const TomlValue& table, Op& op, std::size_t index);

/// Appends the run-time values that entries of `strides` in [tensors] declare, innermost first.
/// read_stride_expressions reads their defaults and bounds once op.symbols is complete.
void read_strides(const ManifestReader& reader, const TomlValue& section, std::vector<Runtime>& values);
void read_stride_expressions(const ManifestReader& reader, const TomlValue& section, Op& op);
/// The name that an entry of `strides` declares.
const std::string& stride_name(const ManifestReader& reader, const TomlValue& declared);
/// The names of RuntimeType in its order: "f32", "f64", ...
RuntimeType read_runtime_type(const ManifestReader& reader, const TomlValue& value);

/// Reads one of the op's types or an element type. `name` is what has the dtype.
ElementType read_dtype(const ManifestReader& reader, const TomlValue& value, const Op& op, std::string_view name);
/// Returns the strides of dense rows. `symbols` has the names in `shape`.
std::vector<Expression> dense_strides(const std::vector<Expression>& shape, const Symbols& symbols);

/// These need op.symbols, op.selections and op.runtime.
std::vector<Tensor> read_tensors(const ManifestReader& reader, const TomlValue& section, const Op& op);
/// Gives each type that an output may have a tolerance, and outputs those of their own. `section` is null when the
/// manifest has no [tolerance].
void read_tolerance(const ManifestReader& reader, const TomlValue* section, Op& op);

/// Adds each of an implementation's [terms] to `symbols`, which must hold the parameters already.
void read_terms(const ManifestReader& reader, const TomlValue& section, const Op& op, Symbols& symbols);

/// Reads [prepare], and checks that it writes each tensor that is filled by it. `section` is null when the manifest has
/// none. `op` must have its tensors.
std::optional<Prepare> read_prepare(const ManifestReader& reader, const TomlValue* section, const Op& op);

/// Reads the passes in `table`, which is [prepare], [reference] or an implementation's file. `op` must be complete but
/// for these. Only an implementation's pass may have a model.
std::vector<Pass> read_passes(const ManifestReader& reader, const TomlValue& table, std::string_view where,
                              const Op& op, const Symbols& symbols, std::span<const Workspace> workspaces);

/// Throws unless the implementation's library is one that computes ops of this kind. `library` is where the manifest
/// names it.
void check_library(const ManifestReader& reader, const TomlValue& library, const Op& op,
                   const Implementation& implementation);
/// Reads what a manifest with `library` has in place of passes, or beside them: [matmul] and the library's parameters,
/// or [collective]. `implementation` must have its workspaces and passes.
void read_library(const ManifestReader& reader, const TomlValue& document, const Op& op,
                  Implementation& implementation);

Implementation read_implementation(const ManifestReader& reader, const TomlValue& document, std::string_view name,
                                   const Op& op);

/// Returns the file name under `key`. Throws unless it is one of op.files.
std::string read_source(const ManifestReader& reader, const TomlValue& table, std::string_view otherwise, const Op& op);

/// Throws unless `name` is an identifier that no symbol, term, tensor or workspace of the op uses.
void check_free_name(const ManifestReader& reader, const std::string& name, const Line& line, const Op& op,
                     const Symbols& symbols, std::span<const Workspace> workspaces = {});
void check_count(const ManifestReader& reader, const Line& line, std::size_t count, int limit, std::string_view what);

}  // namespace kiln::manifest
