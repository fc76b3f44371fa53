// Host functions that compute what kernels compute: how they see a launch, and where they are found.
//
// A twin is found by the kernel's base name and serves all its instances. It reads the real parameters, respects the launch's
// geometry (rows that no block was launched for stay as they were), and touches memory only through Invocation::device, so that a
// wrong stride or size is the illegal address that it would be on a device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "driver/errors.hpp"
#include "driver/settings.hpp"
#include "memory/heap.hpp"
#include "module/kernel_name.hpp"

namespace fake_cuda {

struct Geometry {
  std::array<std::int64_t, 3> grid{1, 1, 1};
  std::array<std::int64_t, 3> block{1, 1, 1};
  std::int64_t cluster = 1;
  std::int64_t dynamic_shared = 0;  // bytes
  [[nodiscard]] std::int64_t threads() const noexcept { return block[0] * block[1] * block[2]; }
  [[nodiscard]] std::int64_t blocks() const noexcept { return grid[0] * grid[1] * grid[2]; }
};

/// What the cost model makes a time of.
struct Traffic {
  double bytes = 0;
  double flops = 0;
  double efficiency = 1;  // of the device's peak, in (0, 1]; depends on the config, so that there is something to tune
};

class Invocation {
 public:
  Invocation(const KernelName& kernel, const Geometry& launched, const std::vector<std::vector<std::byte>>& parameters,
             const Heap& heap, const Settings& device)
      : name(kernel), geometry(launched), settings(device), parameters_(parameters), heap_(heap) {}

  const KernelName& name;
  const Geometry& geometry;
  const Settings& settings;

  /// Parameter i by value. Throws Failure(CUDA_ERROR_LAUNCH_FAILED) when the kernel declares another size.
  template <typename T>
  [[nodiscard]] T value(std::size_t i) const {
    require(i < parameters_.size() && parameters_[i].size() == sizeof(T), CUDA_ERROR_LAUNCH_FAILED);
    T result;
    std::memcpy(&result, parameters_[i].data(), sizeof result);
    return result;
  }
  [[nodiscard]] std::int64_t integer(std::size_t i) const { return value<long long>(i); }
  /// The address that parameter i is, or begins with where it is a view.
  [[nodiscard]] CUdeviceptr address(std::size_t i) const { return static_cast<CUdeviceptr>(word(i, 0)); }
  /// Stride `at` of parameter i, a view.
  [[nodiscard]] std::int64_t stride(std::size_t i, std::size_t at) const { return word(i, 1 + at); }
  /// Device memory at an address. Throws Failure(CUDA_ERROR_ILLEGAL_ADDRESS) unless one allocation holds all of it.
  template <typename T>
  [[nodiscard]] T* at(CUdeviceptr pointer, std::int64_t elements) const {
    require(pointer % alignof(T) == 0, CUDA_ERROR_MISALIGNED_ADDRESS);
    return reinterpret_cast<T*>(
        heap_.at(pointer, elements * static_cast<std::int64_t>(sizeof(T)), CUDA_ERROR_ILLEGAL_ADDRESS));
  }
  /// Parameter i as an address of `elements` elements, all of which must be the device's. Null for a null pointer.
  template <typename T>
  [[nodiscard]] T* device(std::size_t i, std::int64_t elements) const {
    const CUdeviceptr pointer = address(i);
    if (pointer == 0) return nullptr;
    require(pointer % alignof(T) == 0, CUDA_ERROR_MISALIGNED_ADDRESS);
    return reinterpret_cast<T*>(
        heap_.at(pointer, elements * static_cast<std::int64_t>(sizeof(T)), CUDA_ERROR_ILLEGAL_ADDRESS));
  }
  /// The same for what is read or written whatever the caller says. Throws Failure(CUDA_ERROR_ILLEGAL_ADDRESS) for null.
  template <typename T>
  [[nodiscard]] T* required(std::size_t i, std::int64_t elements) const {
    T* pointer = device<T>(i, elements);
    require(pointer != nullptr, CUDA_ERROR_ILLEGAL_ADDRESS);
    return pointer;
  }

  /// Parameter i as kiln::axis_length of templates/common/length.cuh: the bound, or what device memory holds, clamped and reported.
  [[nodiscard]] std::int64_t length(std::size_t i) const;

  [[nodiscard]] const std::string& type_argument(std::size_t i) const;
  /// Of a number, a bool or an enumerator, which a demangled name spells "(type)number".
  [[nodiscard]] std::int64_t template_integer(std::size_t i) const;

 private:
  [[nodiscard]] std::int64_t word(std::size_t i, std::size_t at) const {
    std::int64_t result = 0;
    require(i < parameters_.size() && parameters_[i].size() % sizeof result == 0 &&
                parameters_[i].size() / sizeof result > at,
            CUDA_ERROR_LAUNCH_FAILED);
    std::memcpy(&result, parameters_[i].data() + at * sizeof result, sizeof result);
    return result;
  }

  const std::vector<std::vector<std::byte>>& parameters_;
  const Heap& heap_;
};

struct Twin {
  std::string_view kernel;
  Traffic (*run)(const Invocation& call);
};
/// Null when there is none.
const Twin* find_twin(std::string_view kernel) noexcept;

/// Of an element type as templates spell it; throws Failure(CUDA_ERROR_LAUNCH_FAILED) for any other.
std::int64_t element_bytes(std::string_view type);

/// How well a memory-bound kernel fares: best with `bytes_a_thread` near 64 and 256 threads, worse with too few threads to fill the device.
double memory_efficiency(const Invocation& call, double bytes_a_thread);

// The kernels that have a twin, a file each.
Traffic fill_values(const Invocation& call);
Traffic copy_late(const Invocation& call);
Traffic evict_lines(const Invocation& call);
Traffic team_barrier(const Invocation& call);
Traffic mark_unwritten(const Invocation& call);
Traffic compare_squares(const Invocation& call);
Traffic compare_outputs(const Invocation& call);
Traffic rms_norm_reference(const Invocation& call);
Traffic rms_norm_block_row(const Invocation& call);
Traffic rms_norm_warp_row(const Invocation& call);
Traffic rms_norm_shared_row(const Invocation& call);
Traffic rms_norm_streaming(const Invocation& call);
Traffic rotary_reference(const Invocation& call);
Traffic rotary_heads(const Invocation& call);
Traffic softmax_reference(const Invocation& call);
Traffic softmax_block_row(const Invocation& call);
Traffic softmax_warp_row(const Invocation& call);
Traffic softmax_cluster_row(const Invocation& call);
Traffic softmax_streaming(const Invocation& call);
Traffic gemm_reference(const Invocation& call);
Traffic gemm_simt(const Invocation& call);
Traffic gemm_stream(const Invocation& call);
Traffic gemm_mma(const Invocation& call);
Traffic gemm_reduce(const Invocation& call);
Traffic gemm_wgmma(const Invocation& call);
Traffic gemm_batched_reference(const Invocation& call);
Traffic gemm_batched_simt(const Invocation& call);
Traffic gemm_batched_mma(const Invocation& call);
Traffic gemm_batched_wgmma(const Invocation& call);
Traffic gemm_grouped_reference(const Invocation& call);
Traffic gemm_grouped_simt(const Invocation& call);
Traffic gemm_grouped_stream(const Invocation& call);
Traffic gemm_grouped_mma(const Invocation& call);
Traffic gemm_grouped_wgmma(const Invocation& call);
Traffic vendor_matmul(const Invocation& call);
Traffic vendor_collective(const Invocation& call);
Traffic all_gather_reference(const Invocation& call);
Traffic all_gather_push(const Invocation& call);
Traffic doubled_rows_reference(const Invocation& call);
Traffic doubled_rows(const Invocation& call);
Traffic gemm_all_reduce_mma(const Invocation& call);
Traffic gemm_all_reduce_reference(const Invocation& call);
Traffic all_reduce_reference(const Invocation& call);
Traffic gemm_reduce_scatter_mma(const Invocation& call);
Traffic all_gather_gemm_mma(const Invocation& call);
Traffic scale_reference(const Invocation& call);
Traffic scale_tiled(const Invocation& call);
Traffic scale_early(const Invocation& call);
Traffic scale_copy(const Invocation& call);
Traffic scale_plain(const Invocation& call);
Traffic tile_scale_reference(const Invocation& call);
Traffic tile_scale_plain(const Invocation& call);
Traffic tile_scale_tma(const Invocation& call);
Traffic stair_scale_reference(const Invocation& call);
Traffic stair_scale(const Invocation& call);
Traffic segment_offsets(const Invocation& call);
Traffic segment_sum_reference(const Invocation& call);
Traffic segment_sum(const Invocation& call);
Traffic gather_rows(const Invocation& call);
Traffic gathered_rows_reference(const Invocation& call);
Traffic gathered_rows(const Invocation& call);
Traffic head_scale_reference(const Invocation& call);
Traffic head_scale_plain(const Invocation& call);
Traffic head_scale_careless(const Invocation& call);
Traffic head_scale_packed(const Invocation& call);
Traffic squared_relu_reference(const Invocation& call);
Traffic squared_relu(const Invocation& call);

}  // namespace fake_cuda
