// NVRTC as a table of functions, opened at first use: a deployment whose cache is complete needs no compiler.
#pragma once

#include <cstddef>
#include <string>

typedef struct _nvrtcProgram* nvrtcProgram;

// The underlying type is fixed, because a newer NVRTC may return values that are not listed here.
typedef enum nvrtcResult_enum : unsigned int {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_OUT_OF_MEMORY = 1,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
  NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10,
  NVRTC_ERROR_CANCELLED = 16
} nvrtcResult;

// X(symbol, parameters); each returns nvrtcResult and is exported by NVRTC 12 and newer.
#define KILN_NVRTC_FUNCTIONS(X)                                                                          \
  X(nvrtcVersion, (int* major, int* minor))                                                              \
  X(nvrtcGetNumSupportedArchs, (int* count))                                                             \
  X(nvrtcGetSupportedArchs, (int* archs))                                                                \
  X(nvrtcCreateProgram, (nvrtcProgram * program, const char* source, const char* name, int header_count, \
                         const char* const* headers, const char* const* header_names))                   \
  X(nvrtcDestroyProgram, (nvrtcProgram * program))                                                       \
  X(nvrtcCompileProgram, (nvrtcProgram program, int option_count, const char* const* options))           \
  X(nvrtcGetCUBINSize, (nvrtcProgram program, std::size_t * bytes))                                      \
  X(nvrtcGetCUBIN, (nvrtcProgram program, char* cubin))                                                  \
  X(nvrtcGetProgramLogSize, (nvrtcProgram program, std::size_t * bytes))                                 \
  X(nvrtcGetProgramLog, (nvrtcProgram program, char* log))                                               \
  X(nvrtcAddNameExpression, (nvrtcProgram program, const char* expression))                              \
  X(nvrtcGetLoweredName, (nvrtcProgram program, const char* expression, const char** lowered_name))

namespace kiln::cuda {

struct Nvrtc {
  const char* (*nvrtcGetErrorString)(nvrtcResult result) = nullptr;
#define KILN_DECLARE(symbol, parameters) nvrtcResult(*symbol) parameters = nullptr;
  KILN_NVRTC_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE
  int major = 0;
  int minor = 0;
  std::string path;      // of the library as loaded
  std::string build_id;  // Library::build_id

  /// Opens $KILN_NVRTC_LIBRARY (a path; "none" hides NVRTC) once a process. Where that is unset, opens the first
  /// library in: folder $KILN_NVRTC_DIR, the loader's path, a toolkit's lib64 and lib, the Python wheels. One of the
  /// driver's major version comes before others, wherever it is. Throws Error(no_nvrtc) naming what was tried and what
  /// to install.
  static const Nvrtc& get();
  /// Returns get(), or null where get() throws.
  static const Nvrtc* find() noexcept;
  /// Makes get() open `library` in place of $KILN_NVRTC_LIBRARY. Returns false where it has opened another one before.
  static bool choose(const std::string& library);
  /// Makes get() open $KILN_NVRTC_LIBRARY, or the first library of those above, if what choose() named did not open.
  static void forget_failed_choice();
  /// Opens `library`, as get() opens the value of $KILN_NVRTC_LIBRARY, on each call. Throws Error(no_nvrtc).
  static Nvrtc open(const std::string& library);
};

/// Returns that the NVRTC is of a newer major version than the driver, with both versions and the remedy. Empty where
/// it is not, and without a driver.
std::string why_newer_than_driver(const Nvrtc& nvrtc);

}  // namespace kiln::cuda
