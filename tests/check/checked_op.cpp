#include "checked_op.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace kiln::check::testing {
namespace {

constexpr const char* op_text = R"toml([op]
summary         = "y = (x + bias) * factor, and the sum of each row of y"
revision        = 1
implementations = ["split", "plain"]
[axes]
rows = { bucket = "pow2", max = 1048576 }
cols = { bucket = "exact", max = 65536, multiple_of = 8 }
[types]
dtype = ["bf16", "f32"]
[choices]
sums = ["plain", "squared"]
[runtime]
factor       = { type = "f32", default = 1.0, verify = 0.7 }
x_row_stride = { type = "i64", default = "cols", min = "cols" }
[tensors]
x    = { shape = ["rows", "cols"], strides = ["x_row_stride", "1"], dtype = "dtype" }
bias = { shape = ["cols"], dtype = "dtype", optional = true }
y    = { shape = ["rows", "cols"], dtype = "dtype", output = true }
sum  = { shape = ["rows"], dtype = "f32", output = true }
[tolerance]
bf16 = { relative = 8e-3, absolute = 1e-3 }
f32  = { relative = 1e-5, absolute = 1e-6 }
[reference]
source = "plain.cuh"
[[reference.pass]]
kernel = "reference_rows<{dtype}, sums_of::{sums}>"
grid   = ["rows"]
block  = ["256"]
args   = ["x", "bias", "y", "sum", "rows", "cols", "x_row_stride", "factor"]
[cost]
bytes = "2 * rows * cols * sizeof(dtype) + rows * 4"
flops = "3 * rows * cols"
)toml";

constexpr const char* split_text =
    R"toml(summary = "parts of each row in blocks of their own, whose sums a second pass adds"
options = ["--use_fast_math"]
[parameters]
threads = [128, 256]
vector  = [1, 2, 4]
splits  = [1, 2, 4]
[terms]
bytes = "vector * sizeof(dtype)"
[constraints]
all = [
  "bytes <= 8",
  "cols % (vector * splits) == 0",
  "x_row_stride % vector == 0",
]
[search]
all = ["splits == 1 || rows < 8192"]
[align]
x = "bytes"
y = "bytes"
[default]
threads = 256
vector  = 1
splits  = 1
[workspace]
parts = { bytes = "rows * splits * 4" }
[[pass]]
kernel = "split_rows<{dtype}, {threads}, {vector}, sums_of::{sums}>"
grid   = ["rows", "splits"]
block  = ["threads"]
shared = "threads * 4"
args   = ["x", "bias", "y", "parts", "rows", "cols", "x_row_stride", "factor"]
[[pass]]
kernel = "add_parts"
grid   = ["ceil_div(rows, 256)"]
block  = ["256"]
args   = ["parts", "sum", "rows", { value = "splits", type = "i32" }]
)toml";

constexpr const char* plain_text = R"toml(summary = "a block for each row"
[parameters]
threads = [128, 256]
[default]
threads = 256
[[pass]]
kernel = "plain_rows<{dtype}, {threads}, sums_of::{sums}>"
grid   = ["rows"]
block  = ["threads"]
args   = ["x", "bias", "y", "sum", "rows", "cols", "x_row_stride", "factor"]
)toml";

constexpr const char* rows_source = R"cuda(#pragma once
#include "common/types.cuh"

enum class sums_of { plain, squared };

template <sums_of kind>
__device__ float term(float value) {
  return kind == sums_of::plain ? value : value * value;
}

/// Writes a part of a row of y, and returns the sum of what this thread wrote.
template <sums_of kind, typename T, typename Y>
__device__ float write_row(const T* x, const T* bias, Y* y, long long begin, long long end, float factor, int threads) {
  float sum = 0;
  for (long long i = begin + threadIdx.x; i < end; i += threads) {
    const float value = (kiln::to_float(x[i]) + (bias == nullptr ? 0.0f : kiln::to_float(bias[i]))) * factor;
    y[i] = kiln::from_float<Y>(value);
    sum += term<kind>(value);
  }
  return sum;
}
)cuda";

constexpr const char* split_source = R"cuda(#include "rows.cuh"

template <typename T, int threads, int vector, sums_of kind>
__global__ __launch_bounds__(threads) void split_rows(const T* x, const T* bias, T* y, float* parts, long long rows,
                                                      long long cols, long long x_row_stride, float factor) {
  extern __shared__ float sums[];
  const long long row = blockIdx.x, part = cols / gridDim.y;
  sums[threadIdx.x] = write_row<kind>(x + row * x_row_stride, bias, y + row * cols, blockIdx.y * part,
                                      (blockIdx.y + 1) * part, factor, threads);
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = 0; i < threads; ++i) sum += sums[i];
    parts[row * gridDim.y + blockIdx.y] = sum;
  }
}

__global__ __launch_bounds__(256) void add_parts(const float* parts, float* sums, long long rows, int splits) {
  const long long row = blockIdx.x * 256LL + threadIdx.x;
  if (row >= rows) return;
  float sum = 0;
  for (int i = 0; i < splits; ++i) sum += parts[row * splits + i];
  sums[row] = sum;
}
)cuda";

constexpr const char* plain_source = R"cuda(#include "rows.cuh"

template <typename T, int threads, sums_of kind, typename Y>
__device__ void whole_row(const T* x, const T* bias, Y* y, float* sum, long long cols, long long x_row_stride,
                          float factor) {
  __shared__ float sums[threads];
  const long long row = blockIdx.x;
  sums[threadIdx.x] = write_row<kind>(x + row * x_row_stride, bias, y + row * cols, 0, cols, factor, threads);
  __syncthreads();
  if (threadIdx.x != 0) return;
  sum[row] = 0;
  for (int i = 0; i < threads; ++i) sum[row] += sums[i];
}

template <typename T, int threads, sums_of kind>
__global__ __launch_bounds__(threads) void plain_rows(const T* x, const T* bias, T* y, float* sum, long long rows,
                                                      long long cols, long long x_row_stride, float factor) {
  whole_row<T, threads, kind>(x, bias, y, sum, cols, x_row_stride, factor);
}

template <typename T, sums_of kind>
__global__ __launch_bounds__(256) void reference_rows(const T* x, const T* bias, float* y, float* sum, long long rows,
                                                      long long cols, long long x_row_stride, float factor) {
  whole_row<T, 256, kind>(x, bias, y, sum, cols, x_row_stride, factor);
}
)cuda";

}  // namespace

std::string& Folder::operator[](std::string_view name) {
  const auto found = std::find_if(files.begin(), files.end(), [&](const auto& each) { return each.first == name; });
  REQUIRE(found != files.end());
  return found->second;
}

ReadOp Folder::read() const {
  std::vector<manifest::SourceFile> sources;
  for (const auto& [name, text] : files) sources.push_back({name, text});
  ReadOp read;
  read.op = manifest::parse_op("row_sums", "ops/row_sums", sources, read.mistakes);
  return read;
}

Folder row_sums() {
  return {{{"op.toml", op_text},
           {"split.toml", split_text},
           {"plain.toml", plain_text},
           {"rows.cuh", rows_source},
           {"split.cuh", split_source},
           {"plain.cuh", plain_source}}};
}

void replace(Folder& folder, std::string_view file, std::string_view from, std::string_view to) {
  std::string& text = folder[file];
  const std::size_t at = text.find(from);
  CAPTURE(from);
  REQUIRE(at != std::string::npos);
  REQUIRE(text.find(from, at + 1) == std::string::npos);
  text.replace(at, from.size(), to);
}

int line_of(Folder& folder, std::string_view file, std::string_view text) {
  const std::string& whole = folder[file];
  const std::size_t at = whole.find(text);
  CAPTURE(text);
  REQUIRE(at != std::string::npos);
  return 1 + static_cast<int>(std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

Target h200() {
  return {manifest::DeviceFacts::from_device_class("sm_90/mp132/l2_62914560/smem_232448/bus_6016").value(), "sm_90a"};
}

Target a100() {
  return {manifest::DeviceFacts::from_device_class("sm_80/mp108/l2_41943040/smem_166912/bus_5120").value(), "sm_80"};
}

Findings findings_in(const Folder& folder, std::size_t compiles) {
  Settings settings{{h200()}, {}, compiles > 0, {}};
  if (compiles == 0) settings.targets.push_back(a100());
  settings.compiles.most = compiles;
  Findings findings;
  static_cast<void>(check_op(folder.read(), settings, findings));
  return findings;
}

std::string text_of(const Findings& findings) {
  std::string text;
  for (const Finding& each : findings.sorted()) text += to_string(each) + "\n";
  return text;
}

}  // namespace kiln::check::testing
