// What can be asked: an op and its implementations, as read from a manifest folder.
//
// Frame layout, shared by every expression of an op (see Symbols):
//   [axes | run-time values | types and choices | device facts | parameters of one implementation]
//    ^ dynamic: known at each launch            ^ static: known once a plan is made (first_static)
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kiln/problem.hpp"
#include "manifest/bucket.hpp"
#include "manifest/expression.hpp"
#include "manifest/sources.hpp"

namespace kiln::manifest {

using kiln::max_axes;
using kiln::max_runtime;
using kiln::max_selections;
using kiln::max_tensors;
inline constexpr int max_parameters = 16;
inline constexpr std::int64_t most_search_steps =
    1'000'000;  // of a walk through a space, some 0.1 s; wgmma's longest has 21,000
inline constexpr int max_rank = 4;
inline constexpr int max_arguments = 32;                   // of one pass
inline constexpr int max_tensor_maps = 4;                  // of one pass
inline constexpr std::int64_t first_programmatic_sm = 90;  // older devices refuse programmatic launches

enum class DType : std::uint8_t { bf16, f16, f32, f64, e4m3, e5m2, i8, u8, i32, i64 };
std::string_view to_string(DType type) noexcept;
std::optional<DType> parse_dtype(std::string_view name) noexcept;
std::int64_t size_of(DType type) noexcept;
/// As template sources spell it, such as "kiln::bf16" or "float".
std::string_view cpp_name(DType type) noexcept;

struct Axis {
  std::string name;
  BucketPolicy policy;
  std::int64_t minimum = 1;
  std::int64_t maximum = 0;
  std::int64_t multiple_of = 1;
  bool on_device = false;  // a launch may give it as a length in device memory, bounded by the problem's size
};

/// A type (its values are dtypes) or a choice (its values are plain words). Both select, so both stand in keys.
struct Selection {
  std::string name;
  std::vector<std::string> values;
  std::vector<DType> dtypes;  // of a type: one for each value; empty for a choice
  /// What a caller who gives no value gets: the only one here, or, where `like` is an earlier selection, the one for its value.
  std::vector<std::uint8_t> defaults = {0};
  int like = -1;
  bool declares_default = false;  // the manifest has a `default` for it; else the first value is the default
  [[nodiscard]] bool is_type() const noexcept { return !dtypes.empty(); }
  [[nodiscard]] std::uint8_t default_beside(const Problem& problem) const noexcept {
    return defaults[like < 0 ? 0 : problem.selections[static_cast<std::size_t>(like)]];
  }
};

enum class RuntimeType : std::uint8_t { f32, f64, i32, i64, u32, u64 };

/// Passed to kernels at each launch; can never enter a key. Integers may stand in expressions.
struct Runtime {
  std::string name;
  RuntimeType type = RuntimeType::f32;
  std::optional<Expression> default_integer;  // over static names, axes and earlier run-time values
  std::optional<double> default_real;
  std::optional<Expression> minimum;  // integers only
  [[nodiscard]] bool is_integer() const noexcept { return type != RuntimeType::f32 && type != RuntimeType::f64; }
};

enum class Fill : std::uint8_t { normal, uniform, ones, zeros, index, offsets };

struct Tensor {
  std::string name;
  std::vector<Expression> shape;    // elements, outermost first; rank 1 to max_rank
  std::vector<Expression> strides;  // elements; dense row-major when the manifest gives none
  int selection = -1;               // the type (index into selections) that gives the dtype, or -1
  DType dtype = DType::f32;         // when selection is -1
  Fill fill = Fill::normal;
  double scale = 1.0;                     // the fill is multiplied by it
  std::optional<Expression> last;         // of offsets: what they end at
  bool output = false;                    // poisoned with NaN before a verification, unless initialised
  std::optional<Expression> initialised;  // over types and choices: an output that is also read where it is not 0
  bool optional = false;                  // may be absent (a null pointer)
  std::optional<Expression> when;         // over types and choices: where it is 0 the tensor takes no part
};

/// |got - wanted| <= relative * |wanted| + absolute * rms(wanted), for each element of an output.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
  std::optional<Expression> when;  // over types and choices: where it is 0 the next one of the type counts
};

enum class ArgumentKind : std::uint8_t { tensor, axis, runtime, workspace, expression, tensor_map, length };

/// One kernel argument. An axis is passed as int64, a run-time value as its type, an expression as `type`, a length as
/// kiln::axis_length of templates/common/length.cuh.
struct Argument {
  ArgumentKind kind = ArgumentKind::tensor;
  int index = 0;                        // tensor, axis (also of a length), run-time value, workspace
  RuntimeType type = RuntimeType::i64;  // expression
  Expression value;                     // expression
  std::vector<Expression> box;          // tensor_map: elements, outermost first, one for each dimension
  Expression swizzle;                   // tensor_map: 0, 32, 64 or 128 bytes
  std::optional<Expression> when;  // tensor_map; static: where it is 0 there is none, and the kernel is given zeros
};

/// What `PassModel::operations` counts.
enum class Unit : std::uint8_t {
  instruction,  // of one thread
  fma,          // multiplications and additions of the ordinary cores
  mma,          // the same of the tensor cores, by mma.sync on 16-bit types
  wgmma,        // and by wgmma
};

/// What a pass really does, padding and repetition included: all blocks together unless said otherwise. Only estimates of its
/// time read it (tune/model.hpp, which says what stands for what is left out).
struct PassModel {
  std::optional<Expression> operations;
  Unit unit = Unit::fma;
  std::optional<Expression> read_bytes;       // by multiprocessors, from L2 or memory
  std::optional<Expression> traffic_bytes;    // the same, where read_bytes takes each block for the one that reads most
  std::optional<Expression> written_bytes;    // by multiprocessors, at the end of each block
  std::optional<Expression> memory_bytes;     // between L2 and memory
  std::optional<Expression> shared_bytes;     // in and out of shared memory
  std::optional<Expression> bytes_in_flight;  // of one block: the reads that it has under way at once
  std::optional<Expression> round_trips;      // of one block: how often it waits with nothing to do
  std::optional<Expression> registers;        // of one thread
};

struct Pass {
  std::string kernel;                 // a name expression with {name} or {expression} placeholders
  std::optional<Expression> when;     // over static names: the pass is left out when it is 0
  std::array<Expression, 3> grid;     // blocks, x y z
  std::array<Expression, 3> block;    // threads; static
  std::array<Expression, 3> cluster;  // blocks; static; all 1 when absent
  Expression shared;                  // dynamic shared memory, bytes; static
  std::vector<Argument> arguments;
  bool cooperative = false;
  Expression programmatic;  // static; not 0: may start before its predecessor ends (PDL), on devices that can
  std::optional<PassModel> model;
  int line = 0;
};

struct Parameter {
  std::string name;
  std::vector<std::int64_t> values;  // in the manifest's order; none: any, which a library judges
  /// It stands in `programmatic`, [constraints] and [search] alone: its values are launches of one kernel, so a search takes one of them,
  /// and they are compared where they differ (tune/launch_choice.hpp).
  bool launch_only = false;
};

struct Workspace {
  std::string name;
  Expression bytes;     // taken at the bucket's upper edge
  bool zeroed = false;  // zero when first given; the kernel leaves it zero
};

/// One value for each parameter, in the implementation's order.
using Config = std::vector<std::int64_t>;

/// d = alpha a_scale b_scale a b + c + bias, or relu of that, in f32, as a library of the vendor's computes it: matrices of rank 2 in rows that
/// lie dense, the sizes and leading dimensions being those of the tensors; or all of rank 3, as many products as the outermost size says.
/// A tensor takes part where the op says so; c is d itself where the op says that d is initialised.
struct Matmul {
  int a = 0, b = 0, d = 0;              // tensors
  int c = -1;                           // -1, here and below: none
  int bias = -1;                        // one value a column of d, of each product, added where the launch gives it
  int a_scale = -1, b_scale = -1;       // one f32 each
  int alpha = -1;                       // an f32 run-time value
  Expression transpose_a, transpose_b;  // static; not 0: it lies as [k, m]; as [n, k]
  Expression relu;                      // static
  Expression workspace;                 // static: bytes that a config may ask for
};

struct Implementation {
  std::string name;
  std::string file;  // manifest, as shown in messages
  std::string summary;
  std::string source;                // file name in the op's folder; empty for a library's
  std::string library;               // "cublaslt": no kernels; the library proposes configs and judges them; else empty
  Matmul matmul;                     // of a library
  bool toolkit_headers = false;      // the source includes CUDA toolkit headers
  std::vector<std::string> options;  // further NVRTC options, from a fixed list
  std::optional<Expression> requires_;  // over types, choices and device facts
  std::string requires_text;
  std::vector<Parameter> parameters;
  std::vector<Expression> constraints;  // what a config must meet to serve; over everything but runtime reals
  std::vector<Expression> search;       // and to be tried by a tune besides; likewise
  std::vector<std::pair<int, Expression>> alignment;  // tensor index, bytes that its pointer must be a multiple of
  Config default_config;
  std::vector<Workspace> workspaces;
  std::vector<Pass> passes;
  Symbols symbols;  // the op's, then the parameters

  /// It may be missing on another machine, takes host lengths alone, and never stands in: it has no default.
  [[nodiscard]] bool is_library() const noexcept { return !library.empty(); }
};

struct Op {
  std::string name;
  std::string folder;  // "built-in" or a path
  std::string summary;
  std::int64_t revision = 1;
  std::vector<Axis> axes;
  std::vector<Selection> selections;
  std::vector<Runtime> runtime;
  std::vector<Tensor> tensors;
  std::map<DType, std::vector<Tolerance>> tolerance;  // the last of each type has no `when`
  std::string reference_source;
  bool reference_toolkit_headers = false;
  std::vector<Pass> reference;  // outputs are written as f32 (f64 for f64, the same type for integers)
  Expression cost_bytes;
  Expression cost_flops;
  std::vector<Implementation> implementations;  // the first legal default serves when nothing better is known
  Sources files;                                // every .cuh of the folder
  std::vector<SourceFile> manifests;            // every .toml: with `files` what parse_op makes this op of again
  Symbols symbols;                              // axes, run-time values, types and choices, device facts

  [[nodiscard]] int first_runtime() const noexcept { return static_cast<int>(axes.size()); }
  [[nodiscard]] int first_static() const noexcept { return first_runtime() + static_cast<int>(runtime.size()); }
  [[nodiscard]] int first_device_fact() const noexcept { return first_static() + static_cast<int>(selections.size()); }
  [[nodiscard]] int first_parameter() const noexcept;
  [[nodiscard]] const Implementation* find(std::string_view implementation) const noexcept;
  [[nodiscard]] DType dtype_of(const Tensor& tensor, std::span<const std::int64_t> frame) const noexcept;
  /// Of an output of this type, in a problem with these types and choices.
  [[nodiscard]] Tolerance tolerance_of(DType type, std::span<const std::int64_t> frame) const;
  /// Whether such a problem has the tensor at all.
  [[nodiscard]] static bool takes_part(const Tensor& tensor, std::span<const std::int64_t> frame) noexcept {
    return !tensor.when || tensor.when->evaluate(frame).truth();
  }
  /// Whether such a problem's output is read as well.
  [[nodiscard]] static bool is_initialised(const Tensor& tensor, std::span<const std::int64_t> frame) noexcept {
    return tensor.initialised && tensor.initialised->evaluate(frame).truth();
  }
};

/// A file of the op's folder as messages show it; of a built-in one, by its place in the source tree.
std::string shown_file(const Op& op, std::string_view file);

/// Facts of a device that expressions may name, in frame order: sm (90 for compute capability 9.0), sm_count,
/// shared_per_block (opt-in maximum, bytes), shared_per_sm, registers_per_sm, threads_per_sm, l2_bytes.
struct DeviceFacts {
  static constexpr std::array<std::string_view, 7> names = {
      "sm", "sm_count", "shared_per_block", "shared_per_sm", "registers_per_sm", "threads_per_sm", "l2_bytes"};
  std::array<std::int64_t, names.size()> values{};
  std::int64_t memory_bus_bits = 0;  // in the device class, not in expressions

  [[nodiscard]] std::int64_t sm() const noexcept { return values[0]; }
  [[nodiscard]] std::int64_t sm_count() const noexcept { return values[1]; }
  [[nodiscard]] std::int64_t shared_per_block() const noexcept { return values[2]; }
  [[nodiscard]] std::int64_t shared_per_sm() const noexcept { return values[3]; }
  [[nodiscard]] std::int64_t registers_per_sm() const noexcept { return values[4]; }
  [[nodiscard]] std::int64_t threads_per_sm() const noexcept { return values[5]; }
  [[nodiscard]] std::int64_t l2_bytes() const noexcept { return values[6]; }
  /// The silicon as it stands in keys: "sm_90/mp132/l2_62914560/smem_232448/bus_6144".
  [[nodiscard]] std::string device_class() const;
  /// The inverse of device_class for facts that it holds; the rest by architecture. Empty when it does not parse.
  static std::optional<DeviceFacts> from_device_class(std::string_view text);
};

/// Reads an op from its folder's files ("op.toml", "*.toml", "*.cuh"), given by name and text, so that embedded and on-disk
/// folders read alike. `folder` is for messages. Throws Error(bad_manifest): "FILE:LINE: found X, expected Y".
Op parse_op(std::string_view name, std::string_view folder, std::span<const SourceFile> files);

/// Reads templates/NAME-like folders from disk: the files of `folder` that end in .toml or .cuh, not recursively.
/// Throws Error(bad_manifest) when op.toml is missing, Error(io) when a file cannot be read.
Op load_op(const std::filesystem::path& folder);

/// Every op that can be found: `paths` in order, then KILN_TEMPLATE_PATH (colon-separated), then the built-in ones.
/// An earlier one hides a later one of the same name.
std::vector<Op> load_ops(std::span<const std::filesystem::path> paths);
/// The shared device headers, by include name such as "common/types.cuh".
std::span<const SourceFile> common_headers();

}  // namespace kiln::manifest
