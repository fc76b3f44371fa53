#include "team/peer_links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "team/exchange.hpp"

namespace kiln::team {
namespace {

using manifest::TeamLink;

CUdevice device_at(int ordinal) {
  CUdevice device = 0;
  cuda::check(cuda::Driver::get().cuDeviceGet(&device, ordinal), "opening a device");
  return device;
}

/// In hexadecimal digits. Empty where the driver is too old to tell.
std::string uuid_of(CUdevice device) {
  const cuda::Driver& driver = cuda::Driver::get();
  if (driver.cuDeviceGetUuid_v2 == nullptr) return {};
  CUuuid uuid{};
  cuda::check(driver.cuDeviceGetUuid_v2(&uuid, device), "reading a device's UUID");
  std::string text;
  for (const char byte : uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

/// Nothing where this process does not see the device.
std::optional<CUdevice> device_with(const std::string& uuid) {
  int count = 0;
  cuda::check(cuda::Driver::get().cuDeviceGetCount(&count), "counting devices");
  for (int ordinal = 0; ordinal < count && !uuid.empty(); ++ordinal)
    if (const CUdevice device = device_at(ordinal); uuid_of(device) == uuid) return device;
  return std::nullopt;
}

/// The performance rank of the driver is not asked: it orders the links of one machine, and says nothing of another's.
TeamLink link_between(CUdevice own, CUdevice other) {
  if (own == other) return TeamLink::local;
  const cuda::Driver& driver = cuda::Driver::get();
  if (driver.cuDeviceGetP2PAttribute == nullptr) return TeamLink::unseen;
  const auto has = [&](CUdevice_P2PAttribute attribute) {
    int value = 0;
    cuda::check(driver.cuDeviceGetP2PAttribute(&value, attribute, own, other), "asking for the link of two devices");
    return value != 0;
  };
  if (!has(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)) return TeamLink::unseen;
  // PCIe carries a few kinds of atomics alone, NVLink all.
  return has(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED) ? TeamLink::nvlink : TeamLink::pcie;
}

TeamLink slowest_of(const std::vector<std::string>& links) {
  TeamLink slowest = TeamLink::local;
  for (const std::string& each : links)
    slowest = std::max(slowest, manifest::team_link_from(each).value_or(TeamLink::unseen));
  return slowest;
}

}  // namespace

TeamLink slowest_link(Rendezvous& rendezvous, const cuda::Context& context) {
  const CUdevice own = device_at(context.info().ordinal);
  const std::vector<std::string> uuids =
      gather_on_all_ranks(rendezvous, "asking for its device's UUID", [&] { return uuid_of(own); });
  return slowest_of(gather_on_all_ranks(rendezvous, "asking for the links of its device", [&] {
    std::vector<std::string> links;
    for (const std::string& uuid : uuids) {
      const std::optional<CUdevice> other = device_with(uuid);
      links.emplace_back(to_string(other ? link_between(own, *other) : TeamLink::unseen));
    }
    return std::string(to_string(slowest_of(links)));
  }));
}

}  // namespace kiln::team
