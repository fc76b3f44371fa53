// An op and its implementations, as read from a manifest folder.
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
#include "kiln/tensor.hpp"
#include "manifest/bucket_policy.hpp"
#include "manifest/expression.hpp"
#include "manifest/line.hpp"
#include "manifest/mistakes.hpp"
#include "manifest/real_expression.hpp"
#include "manifest/sources.hpp"

namespace kiln::manifest {

using kiln::max_axes;
using kiln::max_rank;
using kiln::max_runtime;
using kiln::max_selections;
using kiln::max_tensors;
inline constexpr int max_parameters = 16;
inline constexpr std::int64_t most_search_steps = 1'000'000;  // about 0.1 s; wgmma's largest space takes 21,000
inline constexpr int max_arguments = 64;                      // a pass
inline constexpr int max_argument_words = 160;  // a pass: an argument has one, and a view one more for each stride
inline constexpr int max_tensor_maps = 8;       // a pass
inline constexpr int max_tensor_map_rank = 5;
// Bounds of a TMA descriptor. The driver takes strides under 2^40 bytes.
inline constexpr std::int64_t most_tensor_map_size = std::int64_t{1} << 32;
inline constexpr std::int64_t most_tensor_map_stride = std::int64_t{1} << 36;  // elements
inline constexpr std::int64_t most_tensor_map_box = 256;
inline constexpr std::int64_t first_programmatic_sm = 90;  // older devices refuse programmatic launches

using kiln::DType;
using kiln::parse_dtype;
using kiln::size_of;
using kiln::to_string;
/// The type's name in template sources, such as "kiln::bf16" or "float".
std::string_view cpp_name(DType type) noexcept;

/// A bucket policy of an axis, for some types and choices.
struct PolicyCase {
  std::optional<Expression> when;  // over types and choices; absent: for all that no earlier case is for
  BucketPolicy policy;
};

struct Axis {
  std::string name;
  std::vector<PolicyCase> policies =
      std::vector<PolicyCase>(1);  // the first whose `when` holds applies; the last has no `when`
  std::int64_t minimum = 1;
  std::int64_t maximum = 0;
  std::int64_t multiple_of = 1;
  bool on_device = false;  // a launch may read it from device memory; the problem's size bounds it
  bool team = false;       // the number of ranks of the engine's team; exact

  /// The policy for the types and choices in `frame`. No allocation, no exception.
  [[nodiscard]] const BucketPolicy& policy_at(std::span<const std::int64_t> frame) const noexcept;
};

/// The axis's policies for people: "pow2", or 'pow2 when layout == "tn", else exact'.
std::string policy_text(const Axis& axis);

/// A type (its values are dtypes) or a choice (its values are plain words). Both are part of the record key.
struct Selection {
  std::string name;
  std::vector<std::string> values;
  std::vector<DType> dtypes;  // one for each value of a type; empty for a choice
  /// Indices of default values: one, or, when `like` is an earlier selection, one for each of its values.
  std::vector<std::uint8_t> defaults = {0};
  int like = -1;
  bool declares_default = false;  // the manifest has a `default` for it; else the first value is the default
  [[nodiscard]] bool is_type() const noexcept { return !dtypes.empty(); }
  [[nodiscard]] std::uint8_t default_beside(const Problem& problem) const noexcept {
    return defaults[like < 0 ? 0 : problem.selections[static_cast<std::size_t>(like)]];
  }
};

/// A condition that the types and choices of every problem of an op meet.
struct Rule {
  Expression when;
  std::string message;  // why, for who breaks it; may be empty
};

enum class RuntimeType : std::uint8_t { f32, f64, i32, i64, u32, u64 };

/// A bound of reals, 0 or more.
struct RealBound {
  double value = 0;
  bool reached = false;  // the bound itself is a value that is taken
};

/// A value passed to kernels at each launch. Never part of a key. Expressions may use integers.
struct Runtime {
  std::string name;
  RuntimeType type = RuntimeType::f32;
  std::optional<Expression> default_integer;  // may use static names, axes and earlier run-time values
  std::optional<RealExpression> default_real;
  // A verification's value, in place of the default or where there is none.
  std::optional<Expression> verify_integer;  // as default_integer
  std::optional<RealExpression> verify_real;
  std::optional<Expression> minimum, maximum;  // integers only
  /// Reals only, which must be finite then. Without `lower` there is no `upper`.
  std::optional<RealBound> lower, upper;
  std::optional<Expression> above_when;  // over types and choices: where it is 0, `lower` does not hold
  int stride_of = -1;                    // the tensor whose entry in [tensors] declares it
  int line = 0;                          // of op.toml
  bool team_rank = false;                // an i32 that is this process's rank in the engine's team; no launch gives it
  [[nodiscard]] bool is_integer() const noexcept { return type != RuntimeType::f32 && type != RuntimeType::f64; }
};

/// "cols" for a least integer, "1 to cols", "at most cols"; of a real "above 0", "at least 0 and below 1". Empty
/// without bounds.
std::string bound_text(const Runtime& value);

/// |got - wanted| <= relative * |wanted| + absolute * rms, for each element of an output: templates/README.md.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
  std::optional<Expression> when;  // over types and choices: 0 where the next tolerance of the list applies
};

enum class Fill : std::uint8_t { normal, uniform, ones, zeros, index, offsets, prepared };

/// One of the op's types, whose value gives the dtype, or a dtype.
struct ElementType {
  int selection = -1;        // index of the type, or -1
  DType dtype = DType::f32;  // used when selection is -1
};

struct Tensor : ElementType {
  std::string name;
  std::vector<Expression> shape;    // elements, outermost first; rank 1 to max_rank
  std::vector<Expression> strides;  // elements; dense row-major when the manifest gives none
  Fill fill = Fill::normal;
  double scale = 1.0;                     // factor of the fill
  std::optional<Expression> last;         // last value of Fill::offsets
  bool output = false;                    // poisoned with NaN before a verification, unless initialised
  std::optional<Expression> initialised;  // over types and choices: not 0 where the kernel also reads the output
  bool optional = false;                  // the pointer may be null
  std::optional<Expression> when;         // over types and choices: 0 where the problem does not have the tensor
  std::vector<Tolerance> tolerance;       // of its own, whose last has no `when`; empty where the type's applies
  bool per_rank = false;  // an input of which the reference sees the parts of all ranks, one after another

  /// The strides that are no constants, which a kernel's view has.
  [[nodiscard]] std::vector<Expression> open_strides() const;
};

enum class ArgumentKind : std::uint8_t {
  tensor,
  view,
  workspace_view,
  axis,
  runtime,
  workspace,
  zeroed_workspace,
  expression,
  tensor_map,
  workspace_map,
  length,
  report,
  peers,
  team,
  pack
};

/// One kernel argument. A view is passed as a structure of an address and strides, by default Tensor::open_strides. An
/// axis is passed as int64, a run-time value as its type, an expression as `type`, a length as
/// kiln::axis_length of templates/common/length.cuh, a report as the address of a word for
/// kiln::attention::report_length. A pack is passed as a structure of its members, 8 bytes each, or a view's words.
/// Peers and team are passed as the structures of team/protocol.hpp. A TMA descriptor shows a tensor (tensor_map) or a
/// workspace (workspace_map).
struct Argument {
  ArgumentKind kind = ArgumentKind::tensor;
  // Of the tensor (or its view), axis (or length), report's word, run-time value, or workspace (or its view, or peers)
  int index = 0;
  RuntimeType type = RuntimeType::i64;  // expression
  Expression value;                     // expression
  // Of a TMA descriptor.
  /// The view that it shows, in elements, outermost first. A tensor's own unless the manifest gives them.
  std::vector<Expression> shape, strides;  // strides also of a view
  std::vector<Expression> box;             // elements, outermost first, one for each dimension of the view
  bool unbounded = false;  // the view may reach past the tensor or workspace, as one with wrapping addresses does
  Expression swizzle;      // 0, 32, 64 or 128 bytes
  std::optional<Expression> when;  // static, also of a view: where it is 0 the kernel gets zeros in its place
  ElementType element;             // workspace_map
  int half = -1;  // workspace_map of a symmetric workspace: 0 or 1, the half of this rank's team memory that it shows
  std::vector<Argument> members;  // of a pack: what has one word, and views

  /// Words of 8 bytes that a view or pack has; 1 for all others.
  [[nodiscard]] std::size_t words() const noexcept;
};

/// Calls `visit` with each argument; with the members of a pack in its place.
template <typename Visit>
void each_argument(std::span<const Argument> arguments, const Visit& visit) {
  for (const Argument& each : arguments)
    if (each.kind == ArgumentKind::pack)
      each_argument(each.members, visit);
    else
      visit(each);
}

/// The unit of PassModel::operations.
enum class Unit : std::uint8_t {
  instruction,  // an instruction of one thread
  fma,          // a multiplication and addition on CUDA cores
  mma,          // one on tensor cores, by mma.sync on 16-bit types
  wgmma,        // one on tensor cores, by wgmma
};

/// The work of a pass, padding and repetition included, of all blocks together unless noted. Only the cost model uses
/// it; answer/model.hpp gives the defaults.
struct PassModel {
  std::optional<Expression> operations;
  Unit unit = Unit::fma;
  std::optional<Expression> read_bytes;     // read by multiprocessors from L2 or memory
  std::optional<Expression> traffic_bytes;  // bytes really read, when read_bytes assumes that each block reads the most
  std::optional<Expression> written_bytes;  // written by multiprocessors, at the end of each block
  std::optional<Expression> memory_bytes;   // moved between L2 and memory
  std::optional<Expression> shared_bytes;   // moved in and out of shared memory
  std::optional<Expression> bytes_in_flight;  // outstanding reads of one block
  std::optional<Expression> round_trips;      // times that one block stalls for memory
  std::optional<Expression> registers;        // a thread
  std::optional<Expression> busy_blocks;  // blocks that get work, where a persistent grid has more; the model leaves it
};

/// A name expression with {name} or {expression} placeholders. Literal text and placeholders alternate; `literals` has
/// one element more than `placeholders`.
struct KernelName {
  std::vector<std::string> literals;
  std::vector<Expression> placeholders;
};

struct Pass {
  std::string kernel;                 // as the manifest has it
  KernelName name;                    // `kernel`, parsed
  std::optional<Expression> when;     // static: 0 where the pass is left out
  std::array<Expression, 3> grid;     // blocks, x y z
  std::array<Expression, 3> block;    // threads; static
  std::array<Expression, 3> cluster;  // blocks; static; all 1 when absent
  Expression shared;                  // dynamic shared memory, bytes; static
  std::vector<Argument> arguments;
  bool cooperative = false;
  Expression programmatic;  // static: not 0 where it may start before its predecessor ends (PDL), on devices with it
  std::optional<PassModel> model;
  Line line;
};

struct Parameter {
  std::string name;
  std::vector<std::int64_t> values;  // in the manifest's order; empty for a library's parameter, which takes any
  /// Only `programmatic`, [constraints] and [search] use it, so its values are launches of one kernel. A search times
  /// one of them; tune/launch_choice.hpp compares them.
  bool launch_only = false;
};

struct Workspace {
  std::string name;
  Expression bytes;        // evaluated at the largest sizes that a plan is made for
  bool zeroed = false;     // zero before each launch, and each launch leaves it zero; else indeterminate
  bool symmetric = false;  // lies in the team's memory, once in each half
};

/// Kernels that write the inputs with Fill::prepared, for one of several cases. They run before the reference.
struct Prepare {
  std::string source;
  bool toolkit_headers = false;
  std::vector<std::string> cases;
  std::vector<std::size_t> timed;  // indices of the cases that candidates are timed with; one or more
  std::vector<Pass> passes;
  Symbols symbols;  // the op's, then "seed" and "case", in the place of parameters
};

/// One value for each parameter, in the implementation's order.
using Config = std::vector<std::int64_t>;

/// d = alpha a_scale b_scale a b + c + bias, or relu of it, in f32, as a vendor library computes it. The matrices have
/// rank 2 and dense rows, with the sizes and leading dimensions of the tensors; or all have rank 3, whose outermost
/// size is the number of products. c is d itself where the op initialises d.
struct Matmul {
  int a = 0, b = 0, d = 0;              // tensors
  int c = -1;                           // -1, here and below: none
  int bias = -1;                        // a value for each column of d (of each product), when the launch gives it
  int a_scale = -1, b_scale = -1;       // one f32 each
  int alpha = -1;                       // index of an f32 run-time value
  Expression transpose_a, transpose_b;  // static: not 0 where a is stored as [k, m], b as [n, k]
  Expression relu;                      // static
  Expression workspace;                 // static: the most bytes that a config may use
};

enum class CollectiveKind : std::uint8_t { all_gather, reduce_scatter, all_reduce };
std::string_view to_string(CollectiveKind kind) noexcept;

/// What a vendor library exchanges between the ranks of a team: dense elements of one type. All ranks give equal
/// counts.
struct Collective {
  /// A tensor, or a workspace of the implementation; of an optional tensor with a workspace, what the launch gives. -1:
  /// none.
  struct Place {
    int tensor = -1, workspace = -1;
  };
  CollectiveKind kind = CollectiveKind::all_gather;
  Place input, output;
  ElementType element;  // of both
  Expression count;     // elements of one rank's part; of all_reduce: of the input
  bool first = false;   // before the implementation's passes; else after them
};

struct Implementation {
  std::string name;
  std::string file;                // manifest, as shown in messages
  std::vector<std::string> parts;  // that it includes, likewise
  std::string summary;
  std::string source;  // file name in the op's folder; empty for a library's
  std::string
      library;    // "cublaslt", which proposes and checks configs, or "nccl", beside which kernels may run; else empty
  Matmul matmul;  // for cublaslt
  Collective collective;                // for nccl
  bool toolkit_headers = false;         // the source includes CUDA toolkit headers
  std::vector<std::string> options;     // further NVRTC options, from a fixed list
  std::optional<Expression> requires_;  // over types, choices and device facts
  std::string requires_text;
  std::vector<Parameter> parameters;
  std::vector<Expression> constraints;                // hold for every legal config; over all but run-time reals
  std::vector<Expression> search;                     // hold also for every config that a tune tries; likewise
  std::vector<std::pair<int, Expression>> alignment;  // tensor index, alignment of its pointer in bytes
  Config default_config;
  std::vector<Workspace> workspaces;
  std::vector<Pass> passes;
  Symbols symbols;  // the op's, then the parameters

  /// A library may be missing on another machine and takes lengths from the host alone. It has no default, so it never
  /// stands in.
  [[nodiscard]] bool is_library() const noexcept { return !library.empty(); }
  /// Whether it launches kernels of its own, which need machine code. A library's come before or after the collective.
  [[nodiscard]] bool has_kernels() const noexcept { return !passes.empty(); }
  /// Whether the library is one whose ranks exchange, which needs a communicator of the team's.
  [[nodiscard]] bool is_collective() const noexcept { return library == "nccl"; }
  /// Whether its kernels need the symmetric memory of a team.
  [[nodiscard]] bool exchanges_in_memory() const noexcept;
};

struct Op {
  std::string name;
  std::uint32_t tag = 0;  // of its names: Problem::op
  std::string folder;     // "built-in" or a path
  std::string summary;
  std::int64_t revision = 1;
  std::vector<Axis> axes;
  std::vector<Selection> selections;
  std::vector<Rule> allowed;
  std::vector<Runtime> runtime;
  std::vector<Tensor> tensors;
  std::map<DType, std::vector<Tolerance>> tolerance;  // the last tolerance of each type has no `when`
  std::string reference_source;
  bool reference_toolkit_headers = false;
  std::optional<Prepare> prepare;
  std::vector<Pass> reference;  // writes outputs as f32 (f64 for f64, the same type for integers)
  /// Not 0 where the reference may leave elements of floating outputs unwritten. Those need only be finite in an
  /// implementation's output.
  std::optional<Expression> reference_sample;
  Expression cost_bytes;
  Expression cost_flops;
  std::vector<Implementation> implementations;  // the first legal default serves when nothing better is known
  Sources files;                                // every .cuh of the folder
  std::vector<SourceFile> manifests;            // every .toml; parse_op makes the same op of these and `files`
  Symbols symbols;                              // axes, run-time values, types and choices, device facts

  /// The tensors of integers. Kernels report an index in one as they report a length: the words of these come after
  /// those of the axes.
  [[nodiscard]] std::vector<int> index_tensors() const;
  /// The tensor of a report's word, or null where it is that of an axis.
  [[nodiscard]] const Tensor* reported_tensor(std::size_t word) const;
  /// The index of the axis that is the number of ranks, or -1 for an op of one GPU.
  [[nodiscard]] int team_axis() const noexcept;
  [[nodiscard]] bool is_of_team() const noexcept { return team_axis() >= 0; }
  [[nodiscard]] int first_runtime() const noexcept { return static_cast<int>(axes.size()); }
  /// The index of the run-time value that the expression is, or nothing for any other expression.
  [[nodiscard]] std::optional<std::size_t> runtime_of(const Expression& expression) const;
  [[nodiscard]] int first_static() const noexcept { return first_runtime() + static_cast<int>(runtime.size()); }
  [[nodiscard]] int first_device_fact() const noexcept { return first_static() + static_cast<int>(selections.size()); }
  [[nodiscard]] int first_parameter() const noexcept;
  [[nodiscard]] const Implementation* find(std::string_view implementation) const noexcept;
  [[nodiscard]] DType dtype_of(const ElementType& element, std::span<const std::int64_t> frame) const noexcept;
  /// The tolerance for an output: its own, else that of its type. `frame` gives the problem's types and choices.
  [[nodiscard]] Tolerance tolerance_of(const Tensor& output, std::span<const std::int64_t> frame) const;
  /// True when the problem of `frame` has the tensor.
  [[nodiscard]] static bool takes_part(const Tensor& tensor, std::span<const std::int64_t> frame) noexcept {
    return !tensor.when || tensor.when->evaluate(frame).truth();
  }
  /// True when kernels also read this output in the problem of `frame`.
  [[nodiscard]] static bool is_initialised(const Tensor& tensor, std::span<const std::int64_t> frame) noexcept {
    return tensor.initialised && tensor.initialised->evaluate(frame).truth();
  }
};

/// The path of a file of the op's folder for messages. A built-in op's is relative to the source tree.
std::string shown_file(const Op& op, std::string_view file);

/// The slowest kind of link between the devices of a team's ranks, from the fastest on: a record of a team's op serves
/// teams of one kind.
enum class TeamLink : std::uint8_t {
  none,    // there is no team
  local,   // all ranks are on one device
  nvlink,  // all native atomics, which PCIe lacks
  pcie,
  unseen,   // a rank does not see the device of another, or the driver tells nothing
  network,  // ranks met at an address, perhaps on several hosts: they share no memory
};
std::string_view to_string(TeamLink link) noexcept;  // "nvlink"; empty for none
std::optional<TeamLink> team_link_from(std::string_view text) noexcept;

/// Facts of a device that expressions may name, in frame order: sm (90 for compute capability 9.0), sm_count,
/// shared_per_block (opt-in maximum, bytes), shared_per_sm, registers_per_sm, threads_per_sm, l2_bytes.
struct DeviceFacts {
  static constexpr std::array<std::string_view, 7> names = {
      "sm", "sm_count", "shared_per_block", "shared_per_sm", "registers_per_sm", "threads_per_sm", "l2_bytes"};
  std::array<std::int64_t, names.size()> values{};
  std::int64_t memory_bus_bits = 0;  // part of the device class; expressions cannot use it
  TeamLink link = TeamLink::none;    // of the engine's team

  [[nodiscard]] std::int64_t sm() const noexcept { return values[0]; }
  [[nodiscard]] std::int64_t sm_count() const noexcept { return values[1]; }
  [[nodiscard]] std::int64_t shared_per_block() const noexcept { return values[2]; }
  [[nodiscard]] std::int64_t shared_per_sm() const noexcept { return values[3]; }
  [[nodiscard]] std::int64_t registers_per_sm() const noexcept { return values[4]; }
  [[nodiscard]] std::int64_t threads_per_sm() const noexcept { return values[5]; }
  [[nodiscard]] std::int64_t l2_bytes() const noexcept { return values[6]; }
  /// The device class, as keys hold it: "sm_90/mp132/l2_62914560/smem_232448/bus_6144".
  [[nodiscard]] std::string device_class() const;
  /// The device class of an op's records: that of an op of a team ends with the link, as in
  /// "sm_90/mp132/.../bus_6144/nvlink".
  [[nodiscard]] std::string device_class_for(const Op& op) const;
  /// Parses a device class with or without a link; facts that it leaves out follow from the architecture. Returns
  /// nothing when it does not parse.
  static std::optional<DeviceFacts> from_device_class(std::string_view text);
  /// The most shared memory of a block on devices of a compute capability such as 90; nothing for an unknown one.
  static std::optional<std::int64_t> shared_per_block_of(std::int64_t sm) noexcept;
};

/// Whether a record of the class `recorded` is of the class `asked`: a class without a link stands for all links.
bool is_of_class(std::string_view recorded, std::string_view asked) noexcept;

/// Reads an op from the names and texts of its files ("op.toml", "*.toml", "*.cuh"), embedded or from disk. `folder` is
/// for messages. Throws Error(bad_manifest): "FILE:LINE: found X, expected Y".
Op parse_op(std::string_view name, std::string_view folder, std::span<const SourceFile> files);
/// Reads likewise, and appends every mistake in place of throwing the first. The op has what could be read: it is whole
/// when there is none, and an implementation is when none is in its file, in its parts or in op.toml.
Op parse_op(std::string_view name, std::string_view folder, std::span<const SourceFile> files,
            std::vector<Mistake>& mistakes);

/// Reads an op's folder from disk: the files that end in .toml or .cuh, not those of sub-folders.
/// Throws Error(bad_manifest) when op.toml is missing, Error(io) when a file cannot be read.
Op load_op(const std::filesystem::path& folder);

/// Reads likewise, and appends every mistake in place of throwing the first. Throws Error(io) alone.
Op load_op(const std::filesystem::path& folder, std::vector<Mistake>& mistakes);

/// Reads every op of `paths` in order, of KILN_TEMPLATE_PATH (colon-separated) and of the library. The first op of a
/// name hides later ones. Throws Error(bad_manifest) for the first that does not hold, and Error(io) for a folder of
/// ops that cannot be listed.
std::vector<Op> load_ops(std::span<const std::filesystem::path> paths);
/// The folders that KILN_TEMPLATE_PATH lists.
std::vector<std::filesystem::path> template_paths_of_environment();
std::vector<std::string_view> built_in_names();
/// The shared device headers, by include name such as "common/types.cuh".
std::span<const SourceFile> common_headers();
/// The shared parts of manifests, by include name such as "common/gemm/tile.part.toml".
std::span<const SourceFile> common_parts();

}  // namespace kiln::manifest
