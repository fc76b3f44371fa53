#include "cold/by_hand.hpp"

#include <fstream>
#include <iterator>

#include "cuda/nvrtc_api.hpp"

namespace kiln::bench {
namespace {

constexpr const char* source = R"(
extern "C" __global__ void plain_rms_norm(const unsigned short* x, const unsigned short* weight, unsigned short* y, int cols,
                                          float epsilon) {
  __shared__ float partial[32];
  const unsigned short* row = x + (long long)blockIdx.x * cols;
  float sum = 0;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) {
    const float value = __uint_as_float((unsigned)row[i] << 16);
    sum += value * value;
  }
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += partial[warp];
  const float scale = rsqrtf(sum / cols + epsilon);
  for (int i = threadIdx.x; i < cols; i += blockDim.x) {
    const float value = __uint_as_float((unsigned)row[i] << 16) * scale * __uint_as_float((unsigned)weight[i] << 16);
    const unsigned bits = __float_as_uint(value);
    y[(long long)blockIdx.x * cols + i] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
}
)";

void check(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS)
    throw Error(ErrorKind::compile_failed, std::string(what) + ": " + cuda::Nvrtc::get().nvrtcGetErrorString(result));
}

}  // namespace

std::vector<char> compile_by_hand(const std::string& arch) {
  const cuda::Nvrtc& nvrtc = cuda::Nvrtc::get();
  nvrtcProgram program = nullptr;
  check(nvrtc.nvrtcCreateProgram(&program, source, "plain.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  const std::string target = "--gpu-architecture=" + arch;
  // Without the option NVRTC 13 would answer from a cache of its own in the home folder.
  const char* options[] = {"--std=c++20", target.c_str(), "--no-cache"};
  const int known = nvrtc.major >= 13 ? 3 : 2;
  check(nvrtc.nvrtcCompileProgram(program, known, options), "nvrtcCompileProgram");
  std::size_t bytes = 0;
  check(nvrtc.nvrtcGetCUBINSize(program, &bytes), "nvrtcGetCUBINSize");
  std::vector<char> cubin(bytes);
  check(nvrtc.nvrtcGetCUBIN(program, cubin.data()), "nvrtcGetCUBIN");
  nvrtc.nvrtcDestroyProgram(&program);
  return cubin;
}

std::vector<char> read_cubin(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void launch_by_hand(const std::vector<char>& cubin, const NormCase& norm, CUstream stream) {
  const cuda::Driver& driver = cuda::Driver::get();
  CUmodule module = nullptr;
  cuda::check(driver.cuModuleLoadDataEx(&module, cubin.data(), 0, nullptr, nullptr), "cuModuleLoadDataEx");
  CUfunction function = nullptr;
  cuda::check(driver.cuModuleGetFunction(&function, module, "plain_rms_norm"), "cuModuleGetFunction");
  const void* x = norm.x();
  const void* weight = norm.weight();
  const void* y = norm.y();
  int cols = norm_cols;
  auto epsilon = static_cast<float>(norm_epsilon);
  void* parameters[] = {&x, &weight, &y, &cols, &epsilon};
  constexpr unsigned threads = 256;
  cuda::check(driver.cuLaunchKernel(function, norm_rows, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr),
              "cuLaunchKernel");
}

}  // namespace kiln::bench
