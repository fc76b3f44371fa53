#include "twins/vendor_matmul.hpp"

#include <algorithm>
#include <string_view>

#include "twins/elements.hpp"
#include "twins/twin.hpp"

namespace fake_cuda {
namespace {

std::string_view name_of(unsigned type) {
  switch (type) {
    case 0: return "float";
    case 2: return "kiln::f16";
    case 14: return "kiln::bf16";
    case 28: return "kiln::e4m3";
    case 29: return "kiln::e5m2";
    default: return "";
  }
}

/// One of a batch: `at` is where it begins, in elements.
struct Operand {
  CUdeviceptr pointer;
  std::int64_t at;
};

template <typename T>
T* begin_of(const Invocation& call, Operand place, std::int64_t count) {
  return call.at<T>(place.pointer, place.at + count) + place.at;
}

/// [outer, k], whichever way it lies.
std::vector<double> read_matrix(const Invocation& call, Operand place, unsigned type, std::int64_t outer,
                                std::int64_t k, std::int64_t leading, bool along_k) {
  return with_element(name_of(type), [&]<typename T>(T) {
    const std::int64_t rows = along_k ? k : outer, columns = along_k ? outer : k;
    const T* from = begin_of<const T>(call, place, (columns - 1) * leading + rows);
    std::vector<double> values(static_cast<std::size_t>(outer * k));
    for (std::int64_t i = 0; i < outer; ++i)
      for (std::int64_t j = 0; j < k; ++j)
        values[static_cast<std::size_t>(i * k + j)] = to_double(from[along_k ? i * leading + j : j * leading + i]);
    return values;
  });
}

void multiply(const Invocation& call, const VendorMatmul& matmul, std::int64_t product) {
  const std::vector<double> a = read_matrix(call, {matmul.a, product * matmul.stride_a}, matmul.type_a, matmul.m,
                                            matmul.k, matmul.lda, matmul.transpose_a);
  const std::vector<double> b = read_matrix(call, {matmul.b, product * matmul.stride_b}, matmul.type_b, matmul.n,
                                            matmul.k, matmul.ldb, !matmul.transpose_b);
  with_element(name_of(matmul.type_d), [&]<typename T>(T) {
    double scale = static_cast<double>(matmul.alpha);
    for (const CUdeviceptr each : {matmul.a_scale, matmul.b_scale})
      if (each != 0) scale *= static_cast<double>(*call.at<const float>(each, 1));
    const T* c = matmul.beta == 0 ? nullptr
                                  : begin_of<const T>(call, {matmul.c, product * matmul.stride_c},
                                                      (matmul.n - 1) * matmul.ldc + matmul.m);
    const T* bias =
        matmul.bias == 0 ? nullptr : begin_of<const T>(call, {matmul.bias, product * matmul.stride_bias}, matmul.m);
    T* d = begin_of<T>(call, {matmul.d, product * matmul.stride_d}, (matmul.n - 1) * matmul.ldd + matmul.m);
    for (std::int64_t column = 0; column < matmul.n; ++column)
      for (std::int64_t row = 0; row < matmul.m; ++row) {
        double sum = 0;
        for (std::int64_t i = 0; i < matmul.k; ++i)
          sum += a[static_cast<std::size_t>(row * matmul.k + i)] * b[static_cast<std::size_t>(column * matmul.k + i)];
        sum *= scale;
        if (c != nullptr) sum += static_cast<double>(matmul.beta) * to_double(c[column * matmul.ldc + row]);
        if (bias != nullptr) sum += to_double(bias[row]);
        if (matmul.wrong) sum += 1;
        d[column * matmul.ldd + row] = from_double<T>(matmul.relu && sum < 0 ? 0 : sum);
      }
  });
}

}  // namespace

Traffic vendor_matmul(const Invocation& call) {
  const auto matmul = call.value<VendorMatmul>(0);
  if (matmul.workspace_bytes > 0) static_cast<void>(call.at<char>(matmul.workspace, matmul.workspace_bytes));
  for (std::int64_t product = 0; product < matmul.batch; ++product) multiply(call, matmul, product);
  const auto m = static_cast<double>(matmul.m), n = static_cast<double>(matmul.n), k = static_cast<double>(matmul.k);
  const auto batch = static_cast<double>(matmul.batch);
  return {batch * (m * k + n * k + m * n) * 2, batch * 2 * m * n * k, matmul.efficiency};
}

}  // namespace fake_cuda
