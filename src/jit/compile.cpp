#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "cuda/nvrtc_api.hpp"
#include "jit/include_closure.hpp"
#include "jit/include_scan.hpp"
#include "kiln/error.hpp"

namespace kiln::jit {
namespace {

using cuda::Nvrtc;

/// ptxas ignored setmaxnreg or serialised wgmma: the kernel would run, but not as it was written.
constexpr std::array<std::string_view, 3> fatal_advisories = {"C7508", "C7517", "C7519"};

// --no-cache: NVRTC 13 keeps a cache of its own in the home folder. No digest checks that cache, and it hides compile
// times. --no-source-include: a header in the working directory must not replace one that the op declares.
// Neither option reaches the machine code. compile_program() drops both where an older NVRTC does not know them.
constexpr std::array<const char*, 2> isolating_options = {"--no-cache", "--no-source-include"};

void require(nvrtcResult result, const char* what, const Specialisation& specialisation) {
  if (result == NVRTC_SUCCESS) return;
  const ErrorKind kind = result == NVRTC_ERROR_OUT_OF_MEMORY ? ErrorKind::out_of_memory : ErrorKind::compile_failed;
  throw Error(kind, specialisation.label + ": " + what + " failed: " + Nvrtc::get().nvrtcGetErrorString(result));
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> all;
  for (const std::string& text : texts) all.push_back(text.c_str());
  return all;
}

/// Throws Error(compile_failed) for a name expression that could begin a directive: NVRTC pastes it into a pragma line.
void check_name_expression(const std::string& expression, const Specialisation& specialisation) {
  scan_template(specialisation.label + ", name expression", expression);
  if (expression.find_first_of("#\\\"'`@$;{}%") == std::string::npos &&
      std::none_of(expression.begin(), expression.end(),
                   [](unsigned char c) { return std::iscntrl(c) != 0 || c > 126; })) {
    return;
  }
  throw Error(ErrorKind::compile_failed, specialisation.label + ": the name expression '" + expression +
                                             "' is refused; it may hold names, integers and <>(),:*&+- only");
}

/// Puts the op's folder before its file names in a log. Compiles see bare names, so that no path reaches the cubin.
std::string with_folders(const std::string& log, const Specialisation& specialisation) {
  const auto in_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '/' || c == '-';
  };
  std::string shown;
  for (std::size_t at = 0; at < log.size();) {
    const manifest::SourceFile* named = nullptr;
    if (at == 0 || !in_name(log[at - 1])) {
      for (const manifest::SourceFile& file : specialisation.files) {
        const std::size_t end = at + file.name.size();
        if (log.compare(at, file.name.size(), file.name) == 0 && (end >= log.size() || !in_name(log[end])))
          named = &file;
      }
    }
    shown += named != nullptr ? shown_name(specialisation, named->name) : std::string(1, log[at]);
    at += named != nullptr ? named->name.size() : 1;
  }
  return shown;
}

class Program {
 public:
  Program(const Specialisation& specialisation, const Closure& closure) : specialisation_(specialisation) {
    std::vector<const char*> headers;
    std::vector<const char*> names;
    for (const manifest::SourceFile& file : closure.given) {  // with the entry, which a header may include again
      headers.push_back(file.text.c_str());
      names.push_back(file.name.c_str());
    }
    require(nvrtc_.nvrtcCreateProgram(&program_, closure.given.front().text.c_str(), specialisation.entry.c_str(),
                                      static_cast<int>(headers.size()), headers.data(), names.data()),
            "creating an NVRTC program", specialisation);
  }
  ~Program() { nvrtc_.nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void add_name_expression(const std::string& expression) {
    require(nvrtc_.nvrtcAddNameExpression(program_, expression.c_str()), "adding a name expression", specialisation_);
  }

  nvrtcResult compile(const std::vector<std::string>& options) {
    const std::vector<const char*> all = pointers(options);
    return nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(all.size()), all.data());
  }

  std::string log() const {
    std::size_t bytes = 0;
    nvrtc_.nvrtcGetProgramLogSize(program_, &bytes);
    std::string text(bytes, '\0');
    if (bytes > 0) nvrtc_.nvrtcGetProgramLog(program_, text.data());
    text.erase(text.find_last_not_of(std::string_view("\0 \n", 3)) + 1);
    return with_folders(text, specialisation_);
  }

  std::vector<std::byte> image() const {
    std::size_t bytes = 0;
    require(nvrtc_.nvrtcGetCUBINSize(program_, &bytes), "reading the cubin's size", specialisation_);
    std::vector<std::byte> cubin(bytes);
    require(nvrtc_.nvrtcGetCUBIN(program_, reinterpret_cast<char*>(cubin.data())), "reading the cubin",
            specialisation_);
    return cubin;
  }

  std::string lowered_name(const std::string& expression) const {
    const char* name = nullptr;
    require(nvrtc_.nvrtcGetLoweredName(program_, expression.c_str(), &name), "looking up a name expression",
            specialisation_);
    return name;
  }

 private:
  const Nvrtc& nvrtc_ = Nvrtc::get();
  const Specialisation& specialisation_;
  nvrtcProgram program_ = nullptr;
};

/// Returns the part of `text` between `before` and `after`, else an empty string.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + before.size());
  return text.substr(0, text.find(after));
}

/// Returns the reason when ptxas reports nothing but features that the target lacks, else an empty string. Lines of
/// such a log:
///
///   ptxas application ptx input, line 648; error   : Feature '.bf16' requires .target sm_80 or higher
///   ptxas application ptx input, line 480; error   : Instruction 'wgmma.fence' not supported on .target 'sm_90'
///   ptxas fatal   : Ptx assembly aborted due to errors
std::string why_not_for(const std::string& arch, std::string_view log) {
  std::string_view feature, newer;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    if (line.find("error ") == std::string_view::npos) continue;
    const std::string_view needs = between(line, "' requires .target ", " or higher");
    if (needs.empty() && line.find("' not supported on .target ") == std::string_view::npos) return {};
    if (feature.empty()) feature = between(line, "'", "'");
    if (std::pair(needs.size(), needs) > std::pair(newer.size(), newer)) newer = needs;
  }
  if (feature.empty()) return {};
  const std::string lacks = "its code has what " + arch + " has not, such as " + std::string(feature) + "; ";
  if (!newer.empty()) return lacks + std::string(newer) + " or higher has it: choose another type or device";
  if (std::isdigit(static_cast<unsigned char>(arch.back())) != 0)
    return lacks + arch + "a has what is particular to that architecture";
  return lacks + "leave the implementation out there by its 'requires'";
}

void compile_program(Program& program, const Specialisation& specialisation, const Closure& closure) {
  std::vector<std::string> options = byte_determining_options(specialisation);
  for (const auto& folder : closure.include_directories) options.push_back("--include-path=" + folder.string());
  std::vector<std::string> isolated = options;
  isolated.insert(isolated.end(), isolating_options.begin(), isolating_options.end());
  nvrtcResult result = program.compile(isolated);
  if (result == NVRTC_ERROR_INVALID_OPTION) result = program.compile(options);
  if (result == NVRTC_SUCCESS) return;
  const std::string asked = "compiling " + specialisation.label + " for " + specialisation.arch + " failed";
  const std::string log = program.log();
  if (log.find("libnvrtc-builtins") != std::string::npos)
    throw Error(
        ErrorKind::no_nvrtc,
        fmt::format("{}: NVRTC at {} lacks its library libnvrtc-builtins.so.{}.{}; install that beside it, or name "
                    "another NVRTC in KILN_NVRTC_LIBRARY. NVRTC says: {}",
                    asked, Nvrtc::get().path, Nvrtc::get().major, Nvrtc::get().minor, log));
  if (const std::string why = why_not_for(specialisation.arch, log); !why.empty())
    throw Error(ErrorKind::compile_failed, asked + ": " + why);
  throw Error(result == NVRTC_ERROR_OUT_OF_MEMORY ? ErrorKind::out_of_memory : ErrorKind::compile_failed,
              asked + " (" + Nvrtc::get().nvrtcGetErrorString(result) + "):\n" + log);
}

void check_advisories(const std::string& log, const Specialisation& specialisation) {
  for (const std::string_view advisory : fatal_advisories) {
    if (log.find(advisory) == std::string::npos) continue;
    throw Error(ErrorKind::compile_failed,
                "compiling " + specialisation.label + " for " + specialisation.arch + " gave the advisory " +
                    std::string(advisory) +
                    ": the kernel would not run as it is written. Mend the kernel, or rule the "
                    "config out by a constraint. The compiler's log:\n" +
                    log);
  }
}

}  // namespace

Cubin compile(const Specialisation& specialisation) {
  const auto begin = std::chrono::steady_clock::now();
  const auto known = known_closure(specialisation);
  const Closure& closure = known->closure;
  Program program(specialisation, closure);
  for (const std::string& expression : specialisation.name_expressions) {
    if (expression.empty()) continue;  // a pass that is left out
    check_name_expression(expression, specialisation);
    program.add_name_expression(expression);
  }
  compile_program(program, specialisation, closure);
  Cubin cubin;
  cubin.log = program.log();
  check_advisories(cubin.log, specialisation);
  cubin.image = program.image();
  for (const std::string& expression : specialisation.name_expressions) {
    cubin.lowered_names.push_back(expression.empty() ? "" : program.lowered_name(expression));
  }
  cubin.compile_time = std::chrono::steady_clock::now() - begin;
  return cubin;
}

void compile_probe() {
  Specialisation probe;
  probe.label = "an empty kernel";
  probe.entry = "probe.cuh";
  probe.files = std::vector<manifest::SourceFile>{{"probe.cuh", "template <int> __global__ void probe() {}\n"}};
  probe.name_expressions = {"probe<0>"};
  const std::vector<std::string> archs = supported_archs();
  probe.arch = archs.empty() ? "sm_90" : archs.back();
  static_cast<void>(compile(probe));
}

}  // namespace kiln::jit
