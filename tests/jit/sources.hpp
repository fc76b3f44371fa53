// Specialisations for the tests of this folder.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cuda/nvrtc_api.hpp"
#include "jit/specialisation.hpp"
#include "kiln/error.hpp"

namespace kiln::jit::test {

inline Specialisation specialise(std::vector<manifest::SourceFile> files, std::vector<std::string> expressions = {},
                                 std::string arch = "sm_80") {
  Specialisation specialisation;
  specialisation.label = "scale/plain factor=3";
  specialisation.entry = files.front().name;
  specialisation.folder = "/home/user/ops/scale";
  specialisation.files = std::move(files);
  specialisation.name_expressions = std::move(expressions);
  specialisation.arch = std::move(arch);
  return specialisation;
}

/// Applies `edit` to the files of a specialisation, as a list.
template <typename Edit>
void edit_files(Specialisation& specialisation, Edit edit) {
  std::vector<manifest::SourceFile> files = specialisation.files.files();
  edit(files);
  specialisation.files = std::move(files);
}

inline void append(manifest::SourceFile& file, const std::string& text) { file.text = file.text.str() + text; }

/// One kernel in a header of its own, so that the include closure has two files.
inline Specialisation scale_kernel(const std::string& factor = "3", const std::string& arch = "sm_80") {
  return specialise({{"scale.cuh",
                      "#include \"factor.cuh\"\n"
                      "template <typename T, int factor>\n"
                      "__global__ void __launch_bounds__(128) scale(T* x, long long n) {\n"
                      "  const long long i = blockIdx.x * 128ll + threadIdx.x;\n"
                      "  if (i < n) x[i] = multiply<factor>(x[i]);\n"
                      "}\n"},
                     {"factor.cuh",
                      "#pragma once\n"
                      "template <int factor, typename T>\n"
                      "__device__ T multiply(T x) { return x * T(factor); }\n"}},
                    {"scale<float, " + factor + ">"}, arch);
}

inline bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Returns the error that `action` throws, or an error with an empty message.
template <typename Action>
Error thrown_by(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorKind::io, ""};
}

inline bool has_nvrtc() { return cuda::Nvrtc::find() != nullptr; }

}  // namespace kiln::jit::test
