#include "twins/twin.hpp"

#include <algorithm>
#include <cmath>

#include "twins/elements.hpp"

namespace fake_cuda {
namespace {

constexpr Twin twins[] = {
    {"fill_values", fill_values},
    {"refill_values", fill_values},
    {"copy_late", copy_late},
    {"evict_lines", evict_lines},
    {"team_barrier", team_barrier},
    {"mark_unwritten", mark_unwritten},
    {"compare_squares", compare_squares},
    {"compare_outputs", compare_outputs},
    {"rms_norm_reference", rms_norm_reference},
    {"rms_norm_block_row", rms_norm_block_row},
    {"rms_norm_warp_row", rms_norm_warp_row},
    {"rms_norm_shared_row", rms_norm_shared_row},
    {"rms_norm_streaming", rms_norm_streaming},
    {"rotary_reference", rotary_reference},
    {"rotary_heads", rotary_heads},
    {"softmax_reference", softmax_reference},
    {"softmax_block_row", softmax_block_row},
    {"softmax_warp_row", softmax_warp_row},
    {"softmax_cluster_row", softmax_cluster_row},
    {"softmax_streaming", softmax_streaming},
    {"gemm_reference", gemm_reference},
    {"gemm_simt", gemm_simt},
    {"gemm_stream", gemm_stream},
    {"gemm_mma", gemm_mma},
    {"gemm_reduce", gemm_reduce},
    {"gemm_wgmma", gemm_wgmma},
    {"gemm_batched_reference", gemm_batched_reference},
    {"gemm_batched_simt", gemm_batched_simt},
    {"gemm_batched_mma", gemm_batched_mma},
    {"gemm_batched_wgmma", gemm_batched_wgmma},
    {"gemm_grouped_reference", gemm_grouped_reference},
    {"gemm_grouped_simt", gemm_grouped_simt},
    {"gemm_grouped_stream", gemm_grouped_stream},
    {"gemm_grouped_mma", gemm_grouped_mma},
    {"gemm_grouped_wgmma", gemm_grouped_wgmma},
    {"vendor_matmul", vendor_matmul},
    {"vendor_collective", vendor_collective},
    {"all_gather_reference", all_gather_reference},
    {"all_gather_push", all_gather_push},
    {"doubled_rows_reference", doubled_rows_reference},
    {"doubled_rows", doubled_rows},
    {"gemm_all_reduce_mma", gemm_all_reduce_mma},
    {"gemm_all_reduce_reference", gemm_all_reduce_reference},
    {"all_reduce_reference", all_reduce_reference},
    {"gemm_reduce_scatter_mma", gemm_reduce_scatter_mma},
    {"all_gather_gemm_mma", all_gather_gemm_mma},
    {"scale_reference", scale_reference},
    {"scale_tiled", scale_tiled},
    {"scale_early", scale_early},
    {"scale_copy", scale_copy},
    {"scale_plain", scale_plain},
    {"tile_scale_reference", tile_scale_reference},
    {"tile_scale_plain", tile_scale_plain},
    {"tile_scale_tma", tile_scale_tma},
    {"stair_scale_reference", stair_scale_reference},
    {"stair_scale", stair_scale},
    {"segment_offsets", segment_offsets},
    {"segment_sum_reference", segment_sum_reference},
    {"segment_sum", segment_sum},
    {"gather_rows", gather_rows},
    {"gathered_rows_reference", gathered_rows_reference},
    {"gathered_rows", gathered_rows},
    {"head_scale_reference", head_scale_reference},
    {"head_scale_plain", head_scale_plain},
    {"head_scale_careless", head_scale_careless},
    {"head_scale_packed", head_scale_packed},
    {"squared_relu_reference", squared_relu_reference},
    {"squared_relu", squared_relu},
};

}  // namespace

const Twin* find_twin(std::string_view kernel) noexcept {
  const auto* found =
      std::find_if(std::begin(twins), std::end(twins), [&](const Twin& twin) { return twin.kernel == kernel; });
  return found == std::end(twins) ? nullptr : found;
}

std::int64_t Invocation::length(std::size_t i) const {
  struct AxisLength {
    CUdeviceptr on_device;
    std::uint64_t* report;
    std::int32_t bound, unused;
  };
  const auto given = value<AxisLength>(i);
  if (given.on_device == 0) return given.bound;
  const std::int32_t length = *at<const std::int32_t>(given.on_device, 1);
  const std::int32_t clamped = std::clamp(length, 0, given.bound);
  if (clamped != length && given.report != nullptr)
    *given.report = static_cast<std::uint64_t>(given.bound) << 32 | static_cast<std::uint32_t>(length);
  return clamped;
}

const std::string& Invocation::type_argument(std::size_t i) const {
  require(i < name.arguments.size(), CUDA_ERROR_LAUNCH_FAILED);
  return name.arguments[i];
}

std::int64_t Invocation::template_integer(std::size_t i) const {
  std::string_view text = type_argument(i);
  if (text == "true") return 1;
  if (text == "false") return 0;
  if (const std::size_t cast = text.rfind(')'); cast != std::string_view::npos) text.remove_prefix(cast + 1);
  std::int64_t number = 0;
  require(parse_number(text.substr(0, text.find_first_not_of("-0123456789")), number), CUDA_ERROR_LAUNCH_FAILED);
  return number;
}

std::int64_t element_bytes(std::string_view type) {
  return with_element(type, []<typename T>(T) { return static_cast<std::int64_t>(sizeof(T)); });
}

double memory_efficiency(const Invocation& call, double bytes_a_thread) {
  const double threads = static_cast<double>(call.geometry.threads());
  const double shape = 1 + 0.15 * std::abs(std::log2(bytes_a_thread / 64)) + 0.08 * std::abs(std::log2(threads / 256));
  const double resident = static_cast<double>(call.geometry.blocks()) * threads;
  const double room = static_cast<double>(call.settings.multiprocessors * threads_per_multiprocessor) /
                      2;  // half of it saturates memory
  return std::clamp(std::min(1.0, resident / room) / shape, 1e-4, 1.0);
}

}  // namespace fake_cuda
