// Template -> specialisation -> cubin. Needs NVRTC only in compile(); keys need it only for its version.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/key.hpp"
#include "manifest/op.hpp"

namespace kiln::jit {

/// Everything that determines the bytes of a cubin, but for the compiler.
struct Specialisation {
  std::string op;           // empty for Kiln's own kernels
  std::string label;        // for messages: "rms_norm/vectorized threads=256 vector=8"
  std::string entry;        // name of the source file that is compiled, such as "rms_norm.cuh"
  std::string folder;       // of the op, for messages
  manifest::Sources files;  // the op's own files, by include name
  std::vector<std::string> name_expressions;
  std::vector<std::string> options;  // beyond the architecture and the fixed ones
  std::string arch;                  // "sm_90a"
  bool toolkit_headers = false;
  std::string library;          // in place of all the above but for op and label: nothing is compiled
  std::string library_product;  // what it is asked for

  [[nodiscard]] bool is_library() const noexcept { return !library.empty(); }
};

/// What the driver reports of one loaded function, or what the cubin's own notes say before it is loaded.
struct Resources {
  int registers = 0;
  std::int64_t spill_bytes = 0;  // local memory, bytes a thread
  std::int64_t static_shared_bytes = 0;
  int max_threads = 0;
};

struct Cubin {
  std::vector<std::byte> image;
  std::vector<std::string> lowered_names;  // one for each name expression
  std::string log;                         // NVRTC's and ptxas's notes, empty when there are none
  std::chrono::nanoseconds compile_time{0};
};

/// The include closure of the entry, in a fixed order: the op's files, common/ headers and, with toolkit_headers, toolkit
/// files. Throws Error(compile_failed) for a source that the rules refuse: absolute or parent-relative includes, includes
/// and __has_include through macros, __DATE__, __TIME__, __TIMESTAMP__; the message names file and line.
std::vector<manifest::SourceFile> include_closure(const Specialisation& specialisation);

/// "nvrtc 13.0 build <ELF build id>". Throws Error(no_nvrtc).
std::string compiler_identity();

/// Content of closure, name expressions, options, architecture and compiler. Never a path, time stamp or program name.
manifest::Digest cubin_key(const Specialisation& specialisation, std::string_view compiler);
/// Content of closure and name expressions alone, never a manifest's constraints or comments: tells whether a record was tuned from the
/// present source. Of a library's, what its manifest asks it for: its version is no source, but what the record says that it was tuned
/// with (store::Provenance::compiler).
manifest::Digest source_digest(const Specialisation& specialisation);

/// Throws Error(no_nvrtc), or Error(compile_failed) with NVRTC's log, file names and lines being the user's own, or naming
/// the advisory when ptxas ignored setmaxnreg or serialised wgmma (C7508, C7517, C7519: the kernel is wrong about itself).
Cubin compile(const Specialisation& specialisation);

/// "sm_90a" for compute capability 9.0, "sm_80" for 8.0: the most specific target.
std::string target_arch(std::int64_t sm);
/// The same where NVRTC knows it, or there is no NVRTC; else an older minor revision's. Opens NVRTC.
std::string default_arch(std::int64_t sm);
/// Architectures that NVRTC can compile for, as "sm_80". Throws Error(no_nvrtc).
std::vector<std::string> supported_archs();

}  // namespace kiln::jit
