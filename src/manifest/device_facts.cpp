#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "manifest/op.hpp"

namespace kiln::manifest {
namespace {

// Facts that a device class leaves out: shared memory (bytes) and threads of a multiprocessor, by compute capability.
// Source: CUDA C++ Programming Guide, "Technical specifications per compute capability".
struct Architecture {
  std::int64_t sm, shared_per_sm, threads_per_sm;
};
constexpr std::array architectures = {
    Architecture{70, 98304, 2048},   Architecture{75, 65536, 1024},   Architecture{80, 167936, 2048},
    Architecture{86, 102400, 1536},  Architecture{87, 167936, 1536},  Architecture{89, 102400, 1536},
    Architecture{90, 233472, 2048},  Architecture{100, 233472, 2048}, Architecture{103, 233472, 2048},
    Architecture{110, 233472, 1536}, Architecture{120, 102400, 1536}, Architecture{121, 102400, 1536},
};
constexpr std::int64_t register_file = 65536;   // 32-bit registers of a multiprocessor
constexpr std::int64_t reserved_shared = 1024;  // bytes of each block that the system takes, since sm_80

// Removes PREFIX and a number without sign or leading zero from the front of `text`.
std::optional<std::int64_t> take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

constexpr std::array<std::string_view, 6> link_names = {"", "local", "nvlink", "pcie", "unseen", "network"};

}  // namespace

std::string_view to_string(TeamLink link) noexcept { return link_names[static_cast<std::size_t>(link)]; }

std::optional<TeamLink> team_link_from(std::string_view text) noexcept {
  const auto found = std::ranges::find(link_names, text);
  if (found == link_names.end() || text.empty()) return std::nullopt;
  return static_cast<TeamLink>(found - link_names.begin());
}

bool is_of_class(std::string_view recorded, std::string_view asked) noexcept {
  return recorded.starts_with(asked) && (recorded.size() == asked.size() || recorded[asked.size()] == '/');
}

std::string DeviceFacts::device_class_for(const Op& op) const {
  if (!op.is_of_team() || link == TeamLink::none) return device_class();
  return fmt::format("{}/{}", device_class(), to_string(link));
}

std::string DeviceFacts::device_class() const {
  return fmt::format("sm_{}/mp{}/l2_{}/smem_{}/bus_{}", sm(), sm_count(), l2_bytes(), shared_per_block(),
                     memory_bus_bits);
}

std::optional<std::int64_t> DeviceFacts::shared_per_block_of(std::int64_t sm) noexcept {
  for (const Architecture& each : architectures)
    if (each.sm == sm) return each.shared_per_sm - (sm >= 80 ? reserved_shared : 0);
  return std::nullopt;
}

std::optional<DeviceFacts> DeviceFacts::from_device_class(std::string_view text) {
  std::string_view rest = text;
  const auto sm = take(rest, "sm_");
  const auto sm_count = take(rest, "/mp");
  const auto l2_bytes = take(rest, "/l2_");
  const auto shared = take(rest, "/smem_");
  const auto bus = take(rest, "/bus_");
  if (!sm || !sm_count || !l2_bytes || !shared || !bus) return std::nullopt;
  std::optional<TeamLink> link = TeamLink::none;
  const std::string_view silicon = text.substr(0, text.size() - rest.size());
  if (!rest.empty()) link = rest.front() == '/' ? team_link_from(rest.substr(1)) : std::nullopt;
  if (!link) return std::nullopt;

  Architecture architecture{*sm, *shared + reserved_shared, 2048};
  for (const Architecture& each : architectures) {
    if (each.sm == *sm) architecture = each;
  }
  DeviceFacts facts;
  facts.values = {*sm,      *sm_count, *shared, architecture.shared_per_sm, register_file, architecture.threads_per_sm,
                  *l2_bytes};
  facts.memory_bus_bits = *bus;
  facts.link = *link;
  // A device has one spelling: no leading zeros, no signs.
  if (facts.device_class() != silicon) return std::nullopt;
  return facts;
}

}  // namespace kiln::manifest
