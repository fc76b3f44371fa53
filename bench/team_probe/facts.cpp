// What the driver and NVML say of the devices, and what the two processes' socket costs without any device.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>

#include "cuda/library.hpp"
#include "kiln/error.hpp"
#include "team_probe/items.hpp"
#include "team_probe/member.hpp"

namespace kiln::bench {
namespace {

using Clock = std::chrono::steady_clock;

int attribute(CUdevice_attribute which, int ordinal) {
  int value = 0;
  cuda::check(cuda::Driver::get().cuDeviceGetAttribute(&value, which, ordinal), "cuDeviceGetAttribute");
  return value;
}

void print_device(int ordinal) {
  const cuda::DeviceInfo info = cuda::device_info(ordinal);
  print_line(
      "device",
      R"("ordinal":{},"name":"{}","driver":{},"multiprocessors":{},"virtual_memory":{},"descriptors":{},"multicast":{})",
      ordinal, escaped(info.name), info.driver_version, info.facts.sm_count(),
      attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal),
      attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, ordinal),
      attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, ordinal));
  print_line("granularity", R"("ordinal":{},"minimum_bytes":{},"recommended_bytes":{})", ordinal,
             cuda::granularity(ordinal, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
             cuda::granularity(ordinal, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
}

void print_peers(int from, int to) {
  const cuda::Driver& driver = cuda::Driver::get();
  if (driver.cuDeviceGetP2PAttribute == nullptr || driver.cuDeviceCanAccessPeer == nullptr)
    throw Error(ErrorKind::no_driver, driver.path() + " lacks cuDeviceGetP2PAttribute or cuDeviceCanAccessPeer");
  const auto value = [&](CUdevice_P2PAttribute which) {
    int result = 0;
    cuda::check(driver.cuDeviceGetP2PAttribute(&result, which, from, to), "cuDeviceGetP2PAttribute");
    return result;
  };
  int can = 0;
  cuda::check(driver.cuDeviceCanAccessPeer(&can, from, to), "cuDeviceCanAccessPeer");
  print_line("peers", R"("from":{},"to":{},"can_access":{},"access":{},"native_atomics":{},"performance_rank":{})",
             from, to, can, value(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED),
             value(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED), value(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK));
}

/// The functions of NVML that tell of NVLink; each returns 0 for success.
void print_nvlinks() {
  std::string tried;
  const std::array<std::string, 1> names = {"libnvidia-ml.so.1"};
  const auto library = cuda::Library::open(names, tried);
  if (!library) return print_line("nvlink", R"("error":"NVML cannot be opened:{}")", escaped(tried));
  const auto initialise = library->function<int (*)()>("nvmlInit_v2");
  const auto count_devices = library->function<int (*)(unsigned*)>("nvmlDeviceGetCount_v2");
  const auto device_at = library->function<int (*)(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
  const auto link_state = library->function<int (*)(void*, unsigned, unsigned*)>("nvmlDeviceGetNvLinkState");
  const auto remote = library->function<int (*)(void*, unsigned, unsigned*)>("nvmlDeviceGetNvLinkRemoteDeviceType");
  unsigned devices = 0;
  if (initialise == nullptr || count_devices == nullptr || device_at == nullptr || link_state == nullptr ||
      initialise() != 0 || count_devices(&devices) != 0)
    return print_line("nvlink", R"("error":"NVML cannot be used")");
  for (unsigned index = 0; index < devices; ++index) {
    void* device = nullptr;
    if (device_at(index, &device) != 0) continue;
    int active_links = 0, to_switches = 0;
    for (unsigned link = 0; link < 18; ++link) {
      unsigned active = 0, type = 0;
      if (link_state(device, link, &active) != 0 || active == 0) continue;
      ++active_links;
      constexpr unsigned nvswitch = 2;
      if (remote != nullptr && remote(device, link, &type) == 0 && type == nvswitch) ++to_switches;
    }
    print_line("nvlink", R"("index":{},"active_links":{},"links_to_switches":{})", index, active_links, to_switches);
  }
}

double ns_each(Clock::time_point begin, int count) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / count;
}

}  // namespace

void facts(const Side& side) {
  print_nvlinks();
  for (const int ordinal : {side.ordinal, side.peers_ordinal}) print_device(ordinal);
  print_peers(side.ordinal, side.peers_ordinal);
  print_peers(side.peers_ordinal, side.ordinal);
}

void host_link(const Side& side) {
  constexpr int rounds = 1000;
  constexpr std::array<char, 16> written = {"sixteen letters"};
  std::array<char, 16> read{};
  const int file = memfd_create("bench_team_probe", MFD_CLOEXEC);
  if (file < 0 || pwrite(file, written.data(), written.size(), side.rank * 16) != 16)
    throw Error(ErrorKind::io, fmt::format("memfd_create: {}", std::strerror(errno)));
  side.link.send_descriptor(file);
  const int received = side.link.receive_descriptor();
  const bool same = pread(received, read.data(), read.size(), (1 - side.rank) * 16) == 16 && read == written;
  close(received);
  auto begin = Clock::now();
  for (int i = 0; i < rounds; ++i) side.link.meet();
  const double message_ns = ns_each(begin, rounds);
  begin = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    side.link.send_descriptor(file);
    close(side.link.receive_descriptor());
  }
  const double descriptor_ns = ns_each(begin, rounds);
  close(file);
  if (!same) throw Error(ErrorKind::wrong_result, "a descriptor passed, but not to the file that was written");
  if (side.rank == 0)
    print_line("host_link", R"("meeting_ns":{:.0f},"descriptors_exchanged_ns":{:.0f},"file_is_the_same":{})",
               message_ns, descriptor_ns, same);
}

}  // namespace kiln::bench
