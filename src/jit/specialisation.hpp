// Template -> specialisation -> cubin. compile() needs NVRTC; cubin keys need its version.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/key.hpp"
#include "manifest/op.hpp"

namespace kiln::jit {

/// Everything but the compiler that determines the bytes of a cubin.
struct Specialisation {
  std::string op;           // empty for Kiln's own kernels
  std::string label;        // for messages: "rms_norm/vectorized threads=256 vector=8"
  std::string entry;        // name of the source file that is compiled, such as "rms_norm.cuh"
  std::string folder;       // the op's, for messages
  manifest::Sources files;  // the op's own files, by include name
  std::vector<std::string> name_expressions;
  std::vector<std::string> options;  // besides the architecture and the fixed ones
  std::string arch;                  // "sm_90a"
  bool toolkit_headers = false;
  std::string library;          // that computes it, or takes part; else empty
  std::string library_product;  // the manifest's [matmul] or [collective], as text

  /// Whether there is code to compile. Without, only op, label, library and library_product count.
  [[nodiscard]] bool has_kernels() const noexcept { return !entry.empty(); }
};

/// The resources of one function, by the driver or by the cubin's notes.
struct Resources {
  int registers = 0;
  std::int64_t spill_bytes = 0;  // local memory per thread
  std::int64_t static_shared_bytes = 0;
  int max_threads = 0;
  bool operator==(const Resources&) const = default;
};

struct Cubin {
  std::vector<std::byte> image;
  std::vector<std::string> lowered_names;  // one for each name expression
  std::string log;                         // of NVRTC and ptxas
  std::chrono::nanoseconds compile_time{0};
};

/// Returns the include closure of the entry, in a fixed order: the op's files, common/ headers and, with
/// toolkit_headers, toolkit files. Throws Error(compile_failed) with file and line for absolute or parent-relative
/// includes, includes and __has_include through macros, __DATE__, __TIME__ and __TIMESTAMP__.
std::vector<manifest::SourceFile> include_closure(const Specialisation& specialisation);

/// Returns "nvrtc 13.0 build <ELF build id>". Throws Error(no_nvrtc).
std::string compiler_identity();

/// Returns the options that reach the machine code, in the order in which NVRTC takes them and cubin_key() hashes them.
std::vector<std::string> byte_determining_options(const Specialisation& specialisation);

// The three digests cover what a compiler reads of the op's own files and of common/ headers: the tokens, without
// comments, layout and file names. Where more can reach the machine code, such as line numbers, they cover names and
// texts (source_meaning.hpp). Toolkit headers are always covered by text. Earlier versions of Kiln stored digests over
// names and texts; those of the present sources count. All throw as include_closure() does.

/// Digest of closure, name expressions, options, architecture and compiler; never of a path, time or program name.
/// Options that ask for line numbers make it one over text.
manifest::Digest cubin_key(const Specialisation& specialisation, std::string_view compiler);
/// The key under which an earlier version of Kiln stored the same machine code; nothing where that is cubin_key().
std::optional<manifest::Digest> cubin_key_over_text(const Specialisation& specialisation, std::string_view compiler);
/// Returns what `look_up` finds under cubin_key(), else under cubin_key_over_text().
template <class LookUp>
auto find_by_key(const Specialisation& specialisation, std::string_view compiler, LookUp look_up) {
  auto found = look_up(cubin_key(specialisation, compiler));
  if (found) return found;
  if (const auto earlier = cubin_key_over_text(specialisation, compiler)) found = look_up(*earlier);
  return found;
}

/// Digest of closure and name expressions, without constraints and comments of the manifest.
manifest::Digest code_digest(const Specialisation& specialisation);
/// Whether machine code with this stored digest, in hexadecimal digits, is of the present sources.
bool is_present_code(const Specialisation& specialisation, std::string_view stored);
/// Digest of what a record is tuned from: code_digest(), and for a library library_product. Where there are no kernels,
/// a record names the library's version as its compiler.
manifest::Digest source_digest(const Specialisation& specialisation);
/// Whether a choice with this stored digest, in hexadecimal digits, was tuned from the present sources.
bool is_present_source(const Specialisation& specialisation, std::string_view stored);

/// Throws Error(no_nvrtc), Error(out_of_memory), or Error(compile_failed) with NVRTC's log, in the user's file names
/// and lines. Also throws Error(compile_failed) with the advisory when ptxas ignored setmaxnreg or serialised wgmma
/// (C7508, C7517, C7519).
Cubin compile(const Specialisation& specialisation);
/// Compiles an empty kernel, which shows whether NVRTC is whole. Throws as compile() does.
void compile_probe();

/// Returns the most specific target: "sm_90a" for compute capability 9.0 (`sm` 90), "sm_80" for 8.0.
std::string target_arch(std::int64_t sm);
/// Returns target_arch(sm) where NVRTC knows it or is missing, else the target of an older minor revision. Opens NVRTC.
/// Throws Error(compile_failed) when NVRTC knows no target that runs on the device.
std::string default_arch(std::int64_t sm);
/// Returns the architectures that NVRTC compiles for, as "sm_80". Throws Error(no_nvrtc).
std::vector<std::string> supported_archs();

}  // namespace kiln::jit
