// An NVRTC that hands everything to the real one, but for the compiles that are to fail.
//
//   FAULTY_NVRTC_REAL   the path of the real library
//   FAULTY_NVRTC        "KIND COUNT PATTERN": what becomes of the first COUNT compiles of which a name expression holds PATTERN
//                       (the rest of the text, blanks included): memory   NVRTC_ERROR_OUT_OF_MEMORY
//                                                                internal NVRTC_ERROR_INTERNAL_ERROR
//                                                                throw    std::bad_alloc leaves the call
//                                                                crash    the process reads an illegal address
//                                                                hang     the call never returns
//                                                                builtins NVRTC's library of builtins is missing
//   FAULTY_NVRTC_VERSION   "MAJOR MINOR" that the library says it is
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <sstream>
#include <string>

#include "cuda/nvrtc_api.hpp"

namespace {

constexpr auto internal_error = static_cast<nvrtcResult>(11);
constexpr auto builtin_operation_failure = static_cast<nvrtcResult>(7);

struct Order {
  std::string kind, pattern;
  long count = 0;

  Order() {
    const char* text = std::getenv("FAULTY_NVRTC");
    std::istringstream words(text != nullptr ? text : "");
    words >> kind >> count >> std::ws;
    std::getline(words, pattern);
  }
};

constexpr std::string_view builtins_log =
    "nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n"
    "  Make sure that libnvrtc-builtins.so.13.0 is installed correctly.";

std::mutex mutex;
std::set<nvrtcProgram> without_builtins;
std::map<nvrtcProgram, std::string> expressions;  // of each program, one after the other

void* real(const char* symbol) {
  static void* const library = [] {
    const char* path = std::getenv("FAULTY_NVRTC_REAL");
    return path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  }();
  void* address = library != nullptr ? dlsym(library, symbol) : nullptr;
  if (address == nullptr) std::abort();
  return address;
}

template <class Function>
Function* real(const char* symbol, Function* /*like*/) {
  return reinterpret_cast<Function*>(real(symbol));
}

/// What the order says of this program, or an empty string.
std::string fate_of(nvrtcProgram program) {
  static Order order;
  const std::lock_guard lock(mutex);
  if (order.count <= 0 || expressions[program].find(order.pattern) == std::string::npos) return {};
  --order.count;
  return order.kind;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* nvrtcGetErrorString(nvrtcResult result) {
  return real("nvrtcGetErrorString", &nvrtcGetErrorString)(result);
}
nvrtcResult nvrtcVersion(int* major, int* minor) {
  const char* version = std::getenv("FAULTY_NVRTC_VERSION");
  std::istringstream words(version != nullptr ? version : "");
  if (words >> *major >> *minor) return NVRTC_SUCCESS;
  return real("nvrtcVersion", &nvrtcVersion)(major, minor);
}
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  return real("nvrtcGetNumSupportedArchs", &nvrtcGetNumSupportedArchs)(count);
}
nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  return real("nvrtcGetSupportedArchs", &nvrtcGetSupportedArchs)(archs);
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* name, int header_count,
                               const char* const* headers, const char* const* header_names) {
  return real("nvrtcCreateProgram", &nvrtcCreateProgram)(program, source, name, header_count, headers, header_names);
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  {
    const std::lock_guard lock(mutex);
    expressions.erase(*program);
    without_builtins.erase(*program);
  }
  return real("nvrtcDestroyProgram", &nvrtcDestroyProgram)(program);
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int option_count, const char* const* options) {
  const std::string fate = fate_of(program);
  if (fate == "memory") return NVRTC_ERROR_OUT_OF_MEMORY;
  if (fate == "internal") return internal_error;
  if (fate == "throw") throw std::bad_alloc();
  if (fate == "crash") {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer would make something else of it
    std::raise(SIGSEGV);
  }
  while (fate == "hang") pause();
  if (fate == "builtins") {
    const std::lock_guard lock(mutex);
    without_builtins.insert(program);
    return builtin_operation_failure;
  }
  return real("nvrtcCompileProgram", &nvrtcCompileProgram)(program, option_count, options);
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* bytes) {
  return real("nvrtcGetCUBINSize", &nvrtcGetCUBINSize)(program, bytes);
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  return real("nvrtcGetCUBIN", &nvrtcGetCUBIN)(program, cubin);
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* bytes) {
  const std::lock_guard lock(mutex);
  if (without_builtins.contains(program)) {
    *bytes = builtins_log.size() + 1;
    return NVRTC_SUCCESS;
  }
  return real("nvrtcGetProgramLogSize", &nvrtcGetProgramLogSize)(program, bytes);
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  const std::lock_guard lock(mutex);
  if (without_builtins.contains(program)) {
    *std::copy(builtins_log.begin(), builtins_log.end(), log) = '\0';
    return NVRTC_SUCCESS;
  }
  return real("nvrtcGetProgramLog", &nvrtcGetProgramLog)(program, log);
}
nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char* expression) {
  {
    const std::lock_guard lock(mutex);
    expressions[program] += std::string(expression) + "\n";
  }
  return real("nvrtcAddNameExpression", &nvrtcAddNameExpression)(program, expression);
}
nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char* expression, const char** lowered_name) {
  return real("nvrtcGetLoweredName", &nvrtcGetLoweredName)(program, expression, lowered_name);
}

}  // extern "C"
#pragma GCC visibility pop
