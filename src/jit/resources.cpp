// What a kernel needs of a device, as its cubin notes it.
#include <algorithm>

#include "jit/cubin_sections.hpp"
#include "jit/parameters.hpp"

namespace kiln::jit {
namespace {

/// Attributes of .nv.info, as cuobjdump -elf names them.
enum class ResourceAttribute : std::uint8_t {
  max_threads = 0x05,  // u32 x, y, z: __launch_bounds__
  frame_size = 0x11,   // u32 symbol, u32 bytes of local memory
  regcount = 0x2f      // u32 symbol, u32 registers of a thread
};

constexpr std::int64_t most_threads = 1024;     // of a block, on every device
constexpr std::int64_t reserved_shared = 1024;  // bytes that the system takes of a block, in the section since sm_90
constexpr std::int64_t quarter_of_registers = 16384;  // a multiprocessor has four parts, each with its warps
constexpr std::int64_t warp = 32;

/// Returns the threads whose registers fit a multiprocessor. A warp's registers are allocated by 256.
std::int64_t threads_by_registers(std::int64_t registers) {
  const std::int64_t of_warp = (std::max<std::int64_t>(registers, 1) * warp + 255) / 256 * 256;
  return 4 * (quarter_of_registers / of_warp) * warp;
}

}  // namespace

std::optional<Resources> resources_of(std::span<const std::byte> image, std::string_view lowered_name) {
  const std::string name(lowered_name);
  const auto code = section_header(image, ".text." + name);
  const Bytes of_all = section_of(image, ".nv.info");
  if (!code || of_all.empty()) return std::nullopt;
  Resources resources;
  visit_info(of_all, [&](std::uint8_t which, std::uint16_t, Bytes payload) {
    if (payload.size() < 8 || read_at<std::uint32_t>(payload, 0) != (code->sh_info & 0xffffffU)) return;
    const auto value = read_at<std::uint32_t>(payload, 4);
    if (which == static_cast<std::uint8_t>(ResourceAttribute::regcount)) resources.registers = static_cast<int>(value);
    if (which == static_cast<std::uint8_t>(ResourceAttribute::frame_size)) resources.spill_bytes = value;
  });
  if (resources.registers == 0) return std::nullopt;
  std::int64_t threads = std::min(most_threads, threads_by_registers(resources.registers));
  visit_info(section_of(image, ".nv.info." + name), [&](std::uint8_t which, std::uint16_t, Bytes payload) {
    if (which != static_cast<std::uint8_t>(ResourceAttribute::max_threads) || payload.size() < 12) return;
    std::int64_t bound = 1;
    for (std::size_t i = 0; i < 3; ++i)
      bound *= std::clamp<std::int64_t>(read_at<std::uint32_t>(payload, 4 * i), 1, 1024);
    threads = std::min(threads, bound);
  });
  resources.max_threads = static_cast<int>(threads);
  if (const auto shared = section_header(image, ".nv.shared." + name)) {
    const bool has_reserved = section_header(image, ".nv.shared.reserved.0").has_value();
    resources.static_shared_bytes =
        std::max<std::int64_t>(static_cast<std::int64_t>(shared->sh_size) - (has_reserved ? reserved_shared : 0), 0);
  }
  return resources;
}

}  // namespace kiln::jit
