// The rows of a .kiln file as values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manifest/key.hpp"

namespace kiln::store {

enum class Verdict : std::uint8_t { ok, wrong_result, compile_failed, launch_failed, not_timed };
std::string_view to_string(Verdict verdict) noexcept;

/// One candidate timed at one length. Costs are nanoseconds of device time: the median and its 95 % confidence
/// interval.
struct TriedCandidate {
  std::string implementation;
  std::string config;  // "threads=256 vector=8"
  std::string sizes;   // the length, manifest::open_sizes: "m=96"; the bucket's upper edge if it was never timed
  Verdict verdict = Verdict::ok;
  std::string reason;  // empty when the verdict is ok
  double cost_ns = 0, low_ns = 0, high_ns = 0;
  std::int64_t samples = 0;
  int registers = 0;
  std::int64_t spill_bytes = 0;
  bool baseline = false;
};

/// The environment and strategy of a tune.
struct Provenance {
  std::string kiln_version;
  std::string device_name;  // informative only
  int driver_version = 0;
  std::string strategy;           // "racing, 39 of 76 candidates at 8 lengths"
  std::int64_t unix_seconds = 0;  // informative only: no decision reads a clock
};

/// The fastest config, or the fastest that needs no vendor library.
enum class Role : std::uint8_t { fastest, without_library };
std::string_view to_string(Role role) noexcept;

/// One config of a record and the sizes that it serves. Costs are nanoseconds of device time at the upper ends of
/// `sizes`.
struct Choice {
  Role role = Role::fastest;
  std::string sizes;  // manifest::Region as text, "m=65..96"; empty where all axes of the op are exact
  std::string implementation;
  std::string config;
  double cost_ns = 0, low_ns = 0, high_ns = 0;
  std::int64_t samples = 0;
  std::string source_digest;  // hex, jit::source_digest; the choice is stale when the present one differs
  std::string compiler;       // jit::compiler_identity(), or the library's version
};

/// The stored answer for a bucket. `choices` holds at least one of Role::fastest. The choices of one role do not
/// overlap and cover the bucket in the order of their sizes. The last one serves the bucket's upper edge. Choices of
/// Role::without_library exist exactly when a choice of Role::fastest uses a library.
struct Record {
  std::string key;  // canonical text, manifest::record_key
  std::string op;
  std::int64_t revision = 1;
  std::string device_class;
  std::string regime;
  std::string bucket;      // "rows=512 cols=4096 dtype=bf16", the upper edges
  double baseline_ns = 0;  // cost of the op's default at the bucket's upper edge
  Provenance provenance;
  std::vector<Choice> choices;
  std::vector<TriedCandidate> candidates;  // may be empty, as in shipped files
  /// Returns the choice of Role::fastest for the bucket's upper edge. Precondition: there is one.
  [[nodiscard]] const Choice& at_edge() const noexcept;
};

using SharedRecords = std::shared_ptr<const std::vector<Record>>;

struct CubinRow {
  manifest::Digest key{};
  std::string op;             // empty for Kiln's own kernels
  std::string source_digest;  // as in the choices that it serves
  std::string label;          // informative only
  std::string arch;
  std::string compiler;
  std::vector<std::string> name_expressions;
  std::vector<std::string> lowered_names;
  std::vector<std::byte> image;  // uncompressed here, zstd in the file
};

/// A cubin as stored.
struct PackedCubin {
  manifest::Digest key{};
  std::string op, source_digest, label, arch, compiler;
  std::string name_expressions, lowered_names;  // JSON arrays
  std::int64_t image_bytes = 0;
  std::vector<std::byte> image;  // a zstd frame
};

/// A count of uses, and the time of the last one.
struct Usage {
  /// "record", "cubin": processes that a row served, or that found its code present; "launch": by origin; "miss": by
  /// reason.
  std::string source;
  std::string key;  // hex for a cubin
  std::int64_t uses = 0;
  std::int64_t last_use = 0;  // Unix seconds
};

}  // namespace kiln::store
