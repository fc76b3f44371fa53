// What a .kiln file holds, as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "manifest/key.hpp"

namespace kiln::store {

enum class Verdict : std::uint8_t { ok, wrong_result, compile_failed, launch_failed, not_timed };
std::string_view to_string(Verdict verdict) noexcept;

/// One candidate's trial at one length. Costs are nanoseconds of device time; the interval is 95 % of the median.
struct Candidate {
  std::string implementation;
  std::string config;  // "threads=256 vector=8"
  std::string
      sizes;  // where it was timed, manifest::open_sizes: "m=96"; the bucket's upper edge for one that was rejected
  Verdict verdict = Verdict::ok;
  std::string reason;  // for every verdict but ok
  double cost_ns = 0, low_ns = 0, high_ns = 0;
  std::int64_t samples = 0;
  int registers = 0;
  std::int64_t spill_bytes = 0;
  bool baseline = false;
};

/// How a record came to be.
struct Provenance {
  std::string kiln_version;
  std::string device_name;  // for people
  int driver_version = 0;
  std::string strategy;           // "racing, 39 of 76 candidates at 8 lengths"
  std::int64_t unix_seconds = 0;  // informative only: no decision reads a clock
};

/// What a config of a record is kept for: the fastest of all, or the fastest of those that need no vendor library.
enum class Role : std::uint8_t { fastest, without_library };
std::string_view to_string(Role role) noexcept;  // "fastest", "without_library"

/// One config of a record and the sizes that it serves. Costs are nanoseconds of device time at the upper ends of `sizes`.
struct Choice {
  Role role = Role::fastest;
  std::string sizes;  // manifest::Region as text, "m=65..96"; empty where all axes of the op are exact
  std::string implementation;
  std::string config;
  double cost_ns = 0, low_ns = 0, high_ns = 0;
  std::int64_t samples = 0;
  std::string source_digest;  // hex, jit::source_digest; another one makes the choice stale
  std::string compiler;       // jit::compiler_identity(), or the library's version
};

/// The stored answer for a bucket. `choices` holds at least one of Role::fastest. Those of one role do not overlap, cover the bucket and
/// stand in the order of their sizes, so that the last of a role serves the bucket's upper edge. Role::without_library is there exactly
/// where a choice of Role::fastest is a library's.
struct Record {
  std::string key;  // canonical text, manifest::record_key
  std::string op;
  std::int64_t revision = 1;
  std::string device_class;
  std::string regime;
  std::string bucket;      // "rows=512 cols=4096 dtype=bf16", the upper edges
  double baseline_ns = 0;  // of the op's default, at the bucket's upper edge
  Provenance provenance;
  std::vector<Choice> choices;
  std::vector<Candidate> candidates;  // may be empty: shipped files may leave them out
  /// The choice of Role::fastest that serves the bucket's upper edge. Precondition: there is one.
  [[nodiscard]] const Choice& at_edge() const noexcept;
};

struct CubinRow {
  manifest::Digest key{};
  std::string op;             // empty for Kiln's own kernels
  std::string source_digest;  // that of the records that it serves
  std::string label;          // for people
  std::string arch;
  std::string compiler;
  std::vector<std::string> name_expressions;
  std::vector<std::string> lowered_names;
  std::vector<std::byte> image;  // uncompressed here, zstd in the file
};

/// A cubin as its row holds it.
struct PackedCubin {
  manifest::Digest key{};
  std::string op, source_digest, label, arch, compiler;
  std::string name_expressions, lowered_names;  // JSON arrays
  std::int64_t image_bytes = 0;
  std::vector<std::byte> image;  // a zstd frame
};

/// How often something was used, and when last.
struct Usage {
  std::string source;  // "record" and "cubin": processes that a row served; "launch" by origin; "miss" by reason
  std::string key;     // a cubin's in hex
  std::int64_t uses = 0;
  std::int64_t last_use = 0;  // Unix seconds
};

}  // namespace kiln::store
