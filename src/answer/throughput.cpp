#include "answer/throughput.hpp"

#include <array>

namespace kiln::answer {
namespace {

// Rates per multiprocessor and clock. The clock is the boost clock of the data-centre part, else of the largest part.
// Sources: NVIDIA's architecture whitepapers (V100, T4, A100, GA102, AD102, H100, Blackwell). mma of sm_90 and sm_100
// is the rate of mma.sync, not of wgmma or tcgen05: 62 % of 4096 on an H100 (Luo et al., "Benchmarking and Dissecting
// the Nvidia Hopper GPU Architecture", arXiv 2402.13499). l2_bytes is the whitepapers' 5120 bytes a clock of A100 and
// GH100 over the multiprocessors. memory_bytes_a_bit: GB/s over bits of the bus. sm_90 lies between HBM3 (H100, 0.65)
// and HBM3e (H200, 0.78).
struct Architecture {
  std::int64_t sm;
  double clock_ghz, mma, fma, l2_bytes, memory_bytes_a_bit;
};
constexpr std::array architectures = {
    Architecture{70, 1.53, 1024, 128, 32, 0.22},  Architecture{75, 1.59, 1024, 128, 32, 1.25},
    Architecture{80, 1.41, 2048, 128, 47, 0.39},  Architecture{86, 1.74, 1024, 256, 32, 1.81},
    Architecture{89, 2.52, 1024, 256, 32, 2.25},  Architecture{90, 1.755, 2540, 256, 39, 0.75},
    Architecture{100, 1.85, 2540, 256, 39, 0.98}, Architecture{120, 2.41, 1024, 256, 32, 3.5},
};
constexpr double wgmma_a_clock = 3413;        // 5/6 of sm_90's 4096: the power limit lowers the clock at higher rates
constexpr double instructions_a_clock = 128;  // four schedulers, one instruction of a warp each
constexpr double shared_bytes_a_clock = 128;  // 32 banks of 4 bytes
constexpr double l2_port_bytes_a_clock = 64;
constexpr double memory_efficiency = 0.92;  // share of the bus's rate that a copy reaches: refresh and turnarounds

}  // namespace

double Throughput::of(manifest::Unit unit) const noexcept {
  switch (unit) {
    case manifest::Unit::instruction: return instructions;
    case manifest::Unit::fma: return fma;
    case manifest::Unit::mma: return mma;
    case manifest::Unit::wgmma: break;
  }
  return wgmma;
}

Throughput throughput_of(const manifest::DeviceFacts& device) noexcept {
  Architecture found = architectures.front();
  for (const Architecture& each : architectures) {
    if (each.sm <= device.sm()) found = each;
  }
  Throughput rates;
  rates.instructions = instructions_a_clock * found.clock_ghz;
  rates.fma = found.fma * found.clock_ghz;
  rates.mma = found.mma * found.clock_ghz;
  rates.wgmma = wgmma_a_clock * found.clock_ghz;
  rates.shared_bytes = shared_bytes_a_clock * found.clock_ghz;
  rates.l2_bytes = found.l2_bytes * found.clock_ghz;
  rates.l2_port_bytes = l2_port_bytes_a_clock * found.clock_ghz;
  rates.device_memory_bytes =
      static_cast<double>(device.memory_bus_bits) * found.memory_bytes_a_bit * memory_efficiency;
  return rates;
}

}  // namespace kiln::answer
