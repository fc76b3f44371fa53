#include "gemm/library.hpp"

#include <fmt/format.h>

#include "cuda/library.hpp"
#include "cuda/search_path.hpp"
#include "kiln/error.hpp"

namespace bench {

/// As cublasLt.h declares them, with its handles and descriptors as plain pointers and its enumerations as integers.
struct LibraryFunctions {
  std::size_t (*get_version)();
  int (*create)(void** handle);
  int (*create_product)(void** product, int compute_type, int scale_type);
  int (*set_product)(void* product, int attribute, const void* value, std::size_t bytes);
  int (*destroy_product)(void* product);
  int (*create_layout)(void** layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride);
  int (*destroy_layout)(void* layout);
  int (*create_preference)(void** preference);
  int (*set_preference)(void* preference, int attribute, const void* value, std::size_t bytes);
  int (*destroy_preference)(void* preference);
  int (*ask_heuristic)(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference, int most,
                       void* results, int* found);
  int (*multiply)(void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                  void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                  const void* algorithm, void* workspace, std::size_t workspace_bytes, CUstream stream);
};

namespace {

using kiln::spec::DType;

constexpr int real_f32 = 0, real_f16 = 2, real_bf16 = 14, real_e4m3 = 28, real_e5m2 = 29;  // CUDA_R_*
constexpr int compute_f32 = 68;                                                            // CUBLAS_COMPUTE_32F
constexpr int transpose_a = 3, a_scale = 17, b_scale = 18, fast_accum = 25;                // CUBLASLT_MATMUL_DESC_*
constexpr int most_workspace = 1;                                                          // CUBLASLT_MATMUL_PREF_*
constexpr std::int32_t transposed = 1;                                                     // CUBLAS_OP_T

/// cublasLtMatmulHeuristicResult_t
struct HeuristicResult {
  std::array<std::uint64_t, 8> algorithm;
  std::size_t workspace_bytes;
  int status;
  float waves;
  std::array<int, 4> reserved;
};
static_assert(sizeof(HeuristicResult) == 96);

int data_type(DType type) {
  switch (type) {
    case DType::f32: return real_f32;
    case DType::f16: return real_f16;
    case DType::bf16: return real_bf16;
    case DType::e4m3: return real_e4m3;
    case DType::e5m2: return real_e5m2;
    default:
      throw kiln::Error(kiln::ErrorKind::bad_input,
                        fmt::format("cuBLASLt is asked for {} here, expected a floating type of 8 to 32 bits",
                                    kiln::spec::to_string(type)));
  }
}

void check(int status, const char* what, kiln::ErrorKind kind = kiln::ErrorKind::bad_input) {
  if (status != 0) throw kiln::Error(kind, fmt::format("{}: cuBLAS status {}", what, status));
}

template <typename Function>
void resolve(const kiln::cuda::Library& library, const char* symbol, Function& function) {
  function = library.function<Function>(symbol);
  if (function == nullptr)
    throw kiln::Error(kiln::ErrorKind::io,
                      fmt::format("{} lacks {}; cuBLASLt 12 or newer is expected", library.path(), symbol));
}

std::vector<std::string> candidates() {
  const std::vector<std::string> names = {"libcublasLt.so.13", "libcublasLt.so.12"};
  std::vector<std::string> all = names;
  std::vector<std::filesystem::path> folders = kiln::cuda::wheel_folders({"nvidia/cu13/lib", "nvidia/cublas/lib"});
  for (const auto& toolkit : kiln::cuda::toolkit_folders()) folders.push_back(toolkit / "lib64");
  for (std::string& file : kiln::cuda::existing_files(folders, names)) all.push_back(std::move(file));
  return all;
}

}  // namespace

std::optional<Library> Library::open() {
  const std::string named = kiln::cuda::environment("KILN_CUBLASLT_LIBRARY");
  if (named == "none") return std::nullopt;
  std::string tried;
  const auto library = kiln::cuda::Library::open(named.empty() ? candidates() : std::vector{named}, tried);
  if (!library)
    throw kiln::Error(kiln::ErrorKind::io,
                      "cuBLASLt could not be opened; set KILN_CUBLASLT_LIBRARY to libcublasLt.so, or to none for Kiln "
                      "alone. Tried:" +
                          tried);
  LibraryFunctions functions{};
  resolve(*library, "cublasLtGetVersion", functions.get_version);
  resolve(*library, "cublasLtCreate", functions.create);
  resolve(*library, "cublasLtMatmulDescCreate", functions.create_product);
  resolve(*library, "cublasLtMatmulDescSetAttribute", functions.set_product);
  resolve(*library, "cublasLtMatmulDescDestroy", functions.destroy_product);
  resolve(*library, "cublasLtMatrixLayoutCreate", functions.create_layout);
  resolve(*library, "cublasLtMatrixLayoutDestroy", functions.destroy_layout);
  resolve(*library, "cublasLtMatmulPreferenceCreate", functions.create_preference);
  resolve(*library, "cublasLtMatmulPreferenceSetAttribute", functions.set_preference);
  resolve(*library, "cublasLtMatmulPreferenceDestroy", functions.destroy_preference);
  resolve(*library, "cublasLtMatmulAlgoGetHeuristic", functions.ask_heuristic);
  resolve(*library, "cublasLtMatmul", functions.multiply);
  Library opened;
  check(functions.create(&opened.handle_), "cublasLtCreate", kiln::ErrorKind::io);
  opened.functions_ = std::make_shared<const LibraryFunctions>(functions);
  return opened;
}

std::string Library::version() const {
  const std::size_t version = functions_->get_version();  // 130100 for 13.1.0
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

LibraryProduct::LibraryProduct(const Library& library, const Operands& operands, const kiln::cuda::Buffer& workspace,
                               int most, bool fast_accumulation)
    : library_(library), operands_(operands), workspace_(workspace) {
  try {
    describe(fast_accumulation);
    ask(most);
  } catch (...) {
    destroy();
    throw;
  }
}

LibraryProduct::~LibraryProduct() { destroy(); }

void LibraryProduct::destroy() noexcept {
  const LibraryFunctions& functions = library_.functions();
  for (void* layout : {x_layout_, w_layout_, y_layout_})
    if (layout != nullptr) functions.destroy_layout(layout);
  if (product_ != nullptr) functions.destroy_product(product_);
}

/// The library's matrices run down columns: what has rows of k here has columns of k there, and y^T = W x^T is what it is asked for.
void LibraryProduct::describe(bool fast_accumulation) {
  const LibraryFunctions& functions = library_.functions();
  const auto layout = [&](void*& made, DType type, std::int64_t rows, std::int64_t columns) {
    check(functions.create_layout(&made, data_type(type), static_cast<std::uint64_t>(rows),
                                  static_cast<std::uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
  };
  layout(w_layout_, operands_.w_type, operands_.k, operands_.n);
  layout(x_layout_, operands_.x_type, operands_.k, operands_.m);
  layout(y_layout_, operands_.y_type, operands_.n, operands_.m);
  check(functions.create_product(&product_, compute_f32, real_f32), "cublasLtMatmulDescCreate");
  const auto set = [&](int attribute, const auto& value) {
    check(functions.set_product(product_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  };
  set(transpose_a, transposed);
  if (operands_.w_scale != nullptr) set(a_scale, operands_.w_scale);
  if (operands_.x_scale != nullptr) set(b_scale, operands_.x_scale);
  if (fast_accumulation) set(fast_accum, std::int8_t{1});
}

void LibraryProduct::ask(int most) {
  const LibraryFunctions& functions = library_.functions();
  void* preference = nullptr;
  check(functions.create_preference(&preference), "cublasLtMatmulPreferenceCreate");
  const std::unique_ptr<void, int (*)(void*)> owner(preference, functions.destroy_preference);
  const auto bytes = static_cast<std::size_t>(workspace_.bytes());
  check(functions.set_preference(preference, most_workspace, &bytes, sizeof bytes),
        "cublasLtMatmulPreferenceSetAttribute");
  std::vector<HeuristicResult> results(static_cast<std::size_t>(most));
  int found = 0;
  check(functions.ask_heuristic(library_.handle(), product_, w_layout_, x_layout_, y_layout_, y_layout_, preference,
                                most, results.data(), &found),
        "cublasLtMatmulAlgoGetHeuristic");
  results.resize(static_cast<std::size_t>(found));
  for (const HeuristicResult& result : results)
    if (result.status == 0) algorithms_.push_back({result.algorithm});
}

void LibraryProduct::launch(std::size_t algorithm, CUstream stream) const {
  const float one = 1, zero = 0;
  check(library_.functions().multiply(library_.handle(), product_, &one, operands_.w, w_layout_, operands_.x, x_layout_,
                                      &zero, operands_.y, y_layout_, operands_.y, y_layout_, &algorithms_[algorithm],
                                      reinterpret_cast<void*>(workspace_.pointer()),
                                      static_cast<std::size_t>(workspace_.bytes()), stream),
        "cublasLtMatmul", kiln::ErrorKind::driver_failed);
}

}  // namespace bench
