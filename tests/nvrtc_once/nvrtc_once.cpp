// An NVRTC that has the real one compile each program once and remembers what came out: machine code is a function of what NVRTC is
// given, so tests that compile the same kernels again and again, in every build of them, need not wait for it.
//
//   NVRTC_ONCE        the folder of what was compiled: any number of builds and processes may share it
//   NVRTC_ONCE_REAL   the path of the real library; where Kiln would find it unless set
//
// Failures are not remembered, nor programs that may read files of their own. Without a real library each call fails, so that Kiln
// finds no NVRTC and the tests are skipped (main.cpp).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/nvrtc_api.hpp"
#include "kiln/error.hpp"
#include "manifest/key.hpp"
#include "nvrtc_once/outcome.hpp"

// Declared by the very list that Kiln calls them through: a definition that differs does not compile.
#pragma GCC visibility push(default)
extern "C" {
#define NVRTC_ONCE_DECLARE(symbol, parameters) nvrtcResult symbol parameters;
KILN_NVRTC_FUNCTIONS(NVRTC_ONCE_DECLARE)
#undef NVRTC_ONCE_DECLARE
const char* nvrtcGetErrorString(nvrtcResult result);
}
#pragma GCC visibility pop

struct _nvrtcProgram {
  struct File {
    std::string name, text;
  };
  File source;
  std::vector<File> headers;
  std::vector<std::string> expressions;
  nvrtc_once::Outcome outcome;
};

namespace {

using kiln::cuda::Nvrtc;
using nvrtc_once::Outcome;

constexpr auto no_such_library = static_cast<nvrtcResult>(11);  // NVRTC_ERROR_INTERNAL_ERROR

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

struct Real {
  Nvrtc nvrtc;
  std::string failure;

  Real() {
    try {
      nvrtc = Nvrtc::open(environment("NVRTC_ONCE_REAL"));
    } catch (const kiln::Error& error) {
      failure = error.what();
    }
  }
};

const Real& real() {
  static const auto& opened = *new Real;  // as long as the process, as Kiln holds its own
  return opened;
}

std::string key_of(const _nvrtcProgram& program, const std::vector<std::string>& options) {
  kiln::manifest::Hasher hasher;
  hasher.field(real().nvrtc.build_id).field(program.source.name).field(program.source.text);
  hasher.field(static_cast<std::int64_t>(program.headers.size()));
  for (const auto& [name, text] : program.headers) hasher.field(name).field(text);
  hasher.field(static_cast<std::int64_t>(program.expressions.size()));
  for (const std::string& expression : program.expressions) hasher.field(expression);
  for (const std::string& option : options) hasher.field(option);
  return kiln::manifest::to_hex(hasher.finish());
}

bool may_read_files(const std::vector<std::string>& options) {
  return std::any_of(options.begin(), options.end(), [](const std::string& option) {
    return option.starts_with("-I") || option.starts_with("--include-path") || option.starts_with("--pre-include") ||
           option.starts_with("-include");
  });
}

template <typename Size, typename Bytes>
std::string bytes_of(nvrtcProgram program, Size size, Bytes bytes) {
  std::size_t count = 0;
  if (size(program, &count) != NVRTC_SUCCESS) return {};
  std::string text(count, '\0');
  if (count > 0 && bytes(program, text.data()) != NVRTC_SUCCESS) return {};
  return text;
}

Outcome compile(const _nvrtcProgram& program, const std::vector<std::string>& options) {
  const Nvrtc& nvrtc = real().nvrtc;
  std::vector<const char*> names, texts, words;
  for (const auto& [name, text] : program.headers) names.push_back(name.c_str()), texts.push_back(text.c_str());
  for (const std::string& option : options) words.push_back(option.c_str());
  Outcome outcome;
  nvrtcProgram its = nullptr;
  outcome.result = nvrtc.nvrtcCreateProgram(&its, program.source.text.c_str(), program.source.name.c_str(),
                                            static_cast<int>(names.size()), texts.data(), names.data());
  if (outcome.result != NVRTC_SUCCESS) return outcome;
  for (const std::string& expression : program.expressions) nvrtc.nvrtcAddNameExpression(its, expression.c_str());
  outcome.result = nvrtc.nvrtcCompileProgram(its, static_cast<int>(words.size()), words.data());
  outcome.log = bytes_of(its, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog);
  if (outcome.result == NVRTC_SUCCESS) {
    outcome.cubin = bytes_of(its, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN);
    for (const std::string& expression : program.expressions) {
      const char* lowered = "";
      nvrtc.nvrtcGetLoweredName(its, expression.c_str(), &lowered);
      outcome.lowered_names.emplace_back(lowered);
    }
  }
  nvrtc.nvrtcDestroyProgram(&its);
  return outcome;
}

nvrtcResult give(const std::string& bytes, char* to) {
  std::memcpy(to, bytes.data(), bytes.size());
  return NVRTC_SUCCESS;
}

}  // namespace

const char* nvrtcGetErrorString(nvrtcResult result) {
  return real().failure.empty() ? real().nvrtc.nvrtcGetErrorString(result) : real().failure.c_str();
}
nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = real().nvrtc.major;
  *minor = real().nvrtc.minor;
  return real().failure.empty() ? NVRTC_SUCCESS : no_such_library;
}
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  return real().failure.empty() ? real().nvrtc.nvrtcGetNumSupportedArchs(count) : no_such_library;
}
nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  return real().failure.empty() ? real().nvrtc.nvrtcGetSupportedArchs(archs) : no_such_library;
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* name, int header_count,
                               const char* const* headers, const char* const* header_names) {
  if (!real().failure.empty()) return no_such_library;
  *program = new _nvrtcProgram{.source = {name, source}, .headers = {}, .expressions = {}, .outcome = {}};
  for (int i = 0; i < header_count; ++i) (*program)->headers.push_back({header_names[i], headers[i]});
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete std::exchange(*program, nullptr);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char* expression) {
  program->expressions.emplace_back(expression);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int option_count, const char* const* options) {
  const std::vector<std::string> words(options, options + option_count);
  const std::string folder = environment("NVRTC_ONCE");
  const bool remembers = !folder.empty() && !may_read_files(words);
  const std::string file = remembers ? folder + "/" + key_of(*program, words) : "";
  if (std::optional<Outcome> known = remembers ? nvrtc_once::read(file) : std::nullopt) {
    program->outcome = std::move(*known);
  } else {
    program->outcome = compile(*program, words);
    if (remembers && program->outcome.result == NVRTC_SUCCESS) nvrtc_once::write(file, program->outcome);
  }
  return program->outcome.result;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* bytes) {
  *bytes = program->outcome.cubin.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) { return give(program->outcome.cubin, cubin); }
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* bytes) {
  *bytes = program->outcome.log.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) { return give(program->outcome.log, log); }
nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char* expression, const char** lowered_name) {
  const auto& names = program->outcome.lowered_names;
  const auto at = static_cast<std::size_t>(
      std::find(program->expressions.begin(), program->expressions.end(), expression) - program->expressions.begin());
  if (at >= names.size() || names[at].empty()) return NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
  *lowered_name = names[at].c_str();
  return NVRTC_SUCCESS;
}
