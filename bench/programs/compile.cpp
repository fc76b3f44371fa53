#include "programs/compile.hpp"

#include <fmt/format.h>

#include <array>
#include <span>

#include "cuda/library.hpp"
#include "cuda/nvrtc_api.hpp"
#include "cuda/search_path.hpp"
#include "kiln/error.hpp"

namespace bench {
namespace {

using kiln::Error;
using kiln::ErrorKind;
using kiln::cuda::Nvrtc;
using kiln::jit::Specialisation;

/// The functions that Kiln itself does not need.
struct PtxFunctions {
  nvrtcResult (*size)(nvrtcProgram program, std::size_t* bytes);
  nvrtcResult (*text)(nvrtcProgram program, char* ptx);

  static const PtxFunctions& get() {
    static const PtxFunctions functions = [] {
      std::string tried;
      const std::array candidates = {Nvrtc::get().path};
      const auto library = kiln::cuda::Library::open(candidates, tried);
      if (!library) throw Error(ErrorKind::no_nvrtc, tried);
      return PtxFunctions{library->function<decltype(size)>("nvrtcGetPTXSize"),
                          library->function<decltype(text)>("nvrtcGetPTX")};
    }();
    return functions;
  }
};

void require(nvrtcResult result, const char* what, const Specialisation& code) {
  if (result != NVRTC_SUCCESS)
    throw Error(ErrorKind::compile_failed,
                fmt::format("{}: {} failed: {}", code.label, what, Nvrtc::get().nvrtcGetErrorString(result)));
}

class NvrtcProgram {
 public:
  explicit NvrtcProgram(const Specialisation& code) : code_(code), files_(kiln::jit::include_closure(code)) {
    std::vector<const char*> texts, names;
    for (const auto& file : files_) {
      if (file.name.starts_with('<')) continue;  // the toolkit's, which NVRTC reads itself
      texts.push_back(file.text.c_str());
      names.push_back(file.name.c_str());
    }
    require(nvrtc_.nvrtcCreateProgram(&program_, texts.front(), code.entry.c_str(), static_cast<int>(texts.size()),
                                      texts.data(), names.data()),
            "creating an NVRTC program", code);
  }
  ~NvrtcProgram() { nvrtc_.nvrtcDestroyProgram(&program_); }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;

  void compile(const std::vector<std::string>& options) {
    for (const std::string& name : code_.name_expressions)
      require(nvrtc_.nvrtcAddNameExpression(program_, name.c_str()), "adding a name expression", code_);
    std::vector<const char*> all;
    for (const std::string& option : options) all.push_back(option.c_str());
    if (nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(all.size()), all.data()) != NVRTC_SUCCESS)
      throw Error(ErrorKind::compile_failed, fmt::format("compiling {} failed: {}", code_.label, log()));
  }

  [[nodiscard]] std::string ptx() const {
    std::size_t bytes = 0;
    require(PtxFunctions::get().size(program_, &bytes), "reading the PTX's size", code_);
    std::string text(bytes, '\0');
    require(PtxFunctions::get().text(program_, text.data()), "reading the PTX", code_);
    text.resize(text.find_last_not_of('\0') + 1);
    return text;
  }

  [[nodiscard]] std::vector<std::byte> image() const {
    std::size_t bytes = 0;
    require(nvrtc_.nvrtcGetCUBINSize(program_, &bytes), "reading the cubin's size", code_);
    std::vector<std::byte> cubin(bytes);
    require(nvrtc_.nvrtcGetCUBIN(program_, reinterpret_cast<char*>(cubin.data())), "reading the cubin", code_);
    return cubin;
  }

 private:
  [[nodiscard]] std::string log() const {
    std::size_t bytes = 0;
    nvrtc_.nvrtcGetProgramLogSize(program_, &bytes);
    std::string text(bytes, '\0');
    if (bytes > 0) nvrtc_.nvrtcGetProgramLog(program_, text.data());
    text.erase(text.find_last_not_of(std::string_view("\0 \n", 3)) + 1);
    return text;
  }

  const Nvrtc& nvrtc_ = Nvrtc::get();
  const Specialisation& code_;
  std::vector<kiln::manifest::SourceFile> files_;  // the entry comes first
  nvrtcProgram program_ = nullptr;
};

/// The options that determine the bytes, and those that keep a compile apart from this machine.
std::vector<std::string> options_of(const Specialisation& code, Wanted wanted) {
  std::vector<std::string> options = kiln::jit::byte_determining_options(code);
  const std::string real = "--gpu-architecture=sm_";
  for (std::string& option : options)
    if (wanted == Wanted::ptx && option.starts_with(real))
      option = "--gpu-architecture=compute_" + option.substr(real.size());
  if (code.toolkit_headers)
    for (const auto& folder : kiln::cuda::toolkit_include_directories())
      options.push_back("--include-path=" + folder.string());
  options.insert(options.end(), {"--no-cache", "--no-source-include"});
  return options;
}

}  // namespace

Compiled compile(const Specialisation& specialisation, Wanted wanted) {
  NvrtcProgram program(specialisation);
  program.compile(options_of(specialisation, wanted));
  Compiled compiled{program.ptx(), {}};
  if (wanted == Wanted::ptx_and_code) compiled.image = program.image();
  return compiled;
}

}  // namespace bench
