// kiln devices: lists the GPUs that the driver reports.
#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"
#include "cli/units.hpp"
#include "cuda/device.hpp"

namespace kiln::cli {
namespace {

struct DevicesSettings {};

int run(const Globals& globals, const DevicesSettings& /*settings*/) {
  const auto devices = cuda::devices();
  if (globals.json) {
    for (const cuda::DeviceInfo& device : devices)
      print_json(Json{{"device", device.ordinal},
                      {"name", device.name},
                      {"device_class", device.facts.device_class()},
                      {"sm", device.facts.sm()},
                      {"multiprocessors", device.facts.sm_count()},
                      {"l2_bytes", device.facts.l2_bytes()},
                      {"memory_bytes", device.memory_bytes},
                      {"driver_version", device.driver_version}});
    return exit_good;
  }
  Table table({"> device", "name", "> sm", "> multiprocessors", "> L2", "> memory", "device class"});
  for (const cuda::DeviceInfo& device : devices)
    table.row({fmt::format("{}", device.ordinal), device.name,
               fmt::format("{}.{}", device.facts.sm() / 10, device.facts.sm() % 10),
               fmt::format("{}", device.facts.sm_count()), format_bytes(device.facts.l2_bytes()),
               format_bytes(device.memory_bytes), device.facts.device_class()});
  print(table.text());
  return exit_good;
}

}  // namespace

void add_devices(CLI::App& app, Chosen& chosen) {
  add_command<DevicesSettings>(app, chosen, "devices",
                               "List the GPUs that the driver reports, with their device class and memory", nullptr,
                               run, takes_none);
}

}  // namespace kiln::cli
