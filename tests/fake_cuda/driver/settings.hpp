// The machine that the fake driver shows.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fake_cuda {

/// An H200 unless told otherwise.
struct Settings {
  std::int64_t devices = 1;
  std::int64_t driver = 13000;
  std::int64_t sm = 90;
  std::int64_t multiprocessors = 132;
  std::int64_t l2 = 62914560;                        // bytes
  std::int64_t bus = 6144;                           // bits of the memory bus
  std::int64_t memory = std::int64_t{140} << 30;     // bytes
  std::int64_t granularity = std::int64_t{2} << 20;  // bytes, of memory that is created apart from addresses
  std::int64_t overlap = 600;  // ns that a launch saves which may begin before its predecessor ends
  double noise = 0.01;         // of a kernel's time, either way
  std::int64_t pcie = 0;       // 1: devices reach each other by PCIe, not by NVLink
  std::int64_t hidden = 0;     // devices of the machine before the first that the process sees
  std::int64_t late = 0;       // 1: what is enqueued runs when something waits, a piece of each stream in turns
  std::int64_t mode = 0;       // as CUcomputemode: 2 is prohibited, 3 one process at a time
  std::int64_t blocking = 0;   // 1: a launch returns once its kernel has run, as with CUDA_LAUNCH_BLOCKING
  std::int64_t pause = 0;      // us that a thread sleeps after each launch, so that another one's comes between
  std::int64_t footprint = 0;  // bytes; if any, a launch runs nothing, and takes their place in the caches

  /// "devices", "sm", ...: false for a name that there is not, or a value that is no number.
  bool set(std::string_view name, std::string_view value);
};

inline constexpr std::int64_t shared_per_block_optin = 232448;
inline constexpr std::int64_t shared_per_block_default = 49152;
inline constexpr std::int64_t shared_per_multiprocessor = 233472;
inline constexpr std::int64_t shared_reserved_per_block = 1024;
inline constexpr std::int64_t registers_per_multiprocessor = 65536;
inline constexpr std::int64_t threads_per_multiprocessor = 2048;
inline constexpr std::int64_t blocks_per_multiprocessor = 32;
inline constexpr double memory_bytes_per_ns = 4000;
inline constexpr double flops_per_ns = 400e3;
inline constexpr double launch_ns = 1500;

/// Words of a statement; statements of a command. Empty ones are left out.
std::vector<std::string_view> split(std::string_view text, char separator);

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace fake_cuda
