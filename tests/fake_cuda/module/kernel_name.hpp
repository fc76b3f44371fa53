// A lowered kernel name taken apart: what it is, for which template arguments, with which parameter types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fake_cuda {

struct KernelName {
  std::string full;                     // "kiln::softmax_warp_row<kiln::bf16, 128, 32>"
  std::string base;                     // "softmax_warp_row"
  std::vector<std::string> arguments;   // "kiln::bf16", "128", "(kiln::gemm::Layout)0"
  std::vector<std::string> parameters;  // "kiln::bf16 const*", "long long"
};

/// A name that is not mangled, as that of an extern "C" kernel, has neither arguments nor parameters.
KernelName parse_kernel_name(const std::string& lowered);

}  // namespace fake_cuda
