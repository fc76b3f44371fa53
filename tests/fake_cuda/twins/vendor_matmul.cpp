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

/// [outer, k], whichever way it lies.
std::vector<double> read_matrix(const Invocation& call, CUdeviceptr pointer, unsigned type, std::int64_t outer,
                                std::int64_t k, std::int64_t leading, bool along_k) {
  return with_element(name_of(type), [&]<typename T>(T) {
    const std::int64_t rows = along_k ? k : outer, columns = along_k ? outer : k;
    const T* from = call.at<const T>(pointer, (columns - 1) * leading + rows);
    std::vector<double> values(static_cast<std::size_t>(outer * k));
    for (std::int64_t i = 0; i < outer; ++i)
      for (std::int64_t j = 0; j < k; ++j)
        values[static_cast<std::size_t>(i * k + j)] = to_double(from[along_k ? i * leading + j : j * leading + i]);
    return values;
  });
}

}  // namespace

Traffic vendor_matmul(const Invocation& call) {
  const auto matmul = call.value<VendorMatmul>(0);
  const std::vector<double> a =
      read_matrix(call, matmul.a, matmul.type_a, matmul.m, matmul.k, matmul.lda, matmul.transpose_a);
  const std::vector<double> b =
      read_matrix(call, matmul.b, matmul.type_b, matmul.n, matmul.k, matmul.ldb, !matmul.transpose_b);
  if (matmul.workspace_bytes > 0) static_cast<void>(call.at<char>(matmul.workspace, matmul.workspace_bytes));
  with_element(name_of(matmul.type_d), [&]<typename T>(T) {
    double scale = static_cast<double>(matmul.alpha);
    for (const CUdeviceptr each : {matmul.a_scale, matmul.b_scale})
      if (each != 0) scale *= static_cast<double>(*call.at<const float>(each, 1));
    const T* c = matmul.beta == 0 ? nullptr : call.at<const T>(matmul.c, (matmul.n - 1) * matmul.ldc + matmul.m);
    const T* bias = matmul.bias == 0 ? nullptr : call.at<const T>(matmul.bias, matmul.m);
    T* d = call.at<T>(matmul.d, (matmul.n - 1) * matmul.ldd + matmul.m);
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
  const auto m = static_cast<double>(matmul.m), n = static_cast<double>(matmul.n), k = static_cast<double>(matmul.k);
  return {(m * k + n * k + m * n) * 2, 2 * m * n * k, matmul.efficiency};
}

}  // namespace fake_cuda
