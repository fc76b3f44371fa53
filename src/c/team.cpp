// Teams: the ranks that compute an op together.
#include <fmt/format.h>

#include "c/handles.hpp"
#include "c/status.hpp"

namespace kiln::c {
namespace {

TeamOptions options_of(const kiln_team_options* given) {
  TeamOptions options;
  if (given == nullptr) return options;
  sized(given, "kiln_team_options");
  if (given->device >= 0) options.device = given->device;
  if (given->bytes > 0) options.bytes = given->bytes;
  if (given->timeout_ms > 0) options.timeout = std::chrono::milliseconds(given->timeout_ms);
  if (given->launch_timeout_ms > 0) options.launch_timeout = std::chrono::milliseconds(given->launch_timeout_ms);
  if (given->address != nullptr) options.address = given->address;
  return options;
}

}  // namespace
}  // namespace kiln::c

using namespace kiln::c;

kiln_status kiln_team_name(char** name) {
  return guarded([&] {
    given(name, "name");
    *name = text_of(kiln::unique_team_name());
  });
}

kiln_status kiln_team_create(int32_t rank, int32_t world, const char* name, const kiln_team_options* options,
                             kiln_team** team) {
  return guarded([&] {
    given(team, "team");
    *team = new kiln_team{
        std::make_shared<kiln::Team>(rank, world, std::string(&given(name, "name")), options_of(options))};
  });
}

kiln_status kiln_team_from_launcher(const kiln_team_options* options, kiln_team** team) {
  return guarded([&] {
    given(team, "team");
    *team = new kiln_team{std::make_shared<kiln::Team>(options_of(options))};
  });
}

void kiln_team_destroy(kiln_team* team) { delete team; }

kiln_status kiln_team_get_info(const kiln_team* team, kiln_team_info* info) {
  return guarded([&] {
    const kiln::Team& of = *given(team, "team").team;
    sized(info, "kiln_team_info") = {
        sizeof(kiln_team_info), of.name().c_str(), of.rank(), of.world(), of.device(), 0, of.bytes()};
  });
}

kiln_status kiln_team_reset(kiln_team* team) {
  return guarded([&] { given(team, "team").team->reset(); });
}

kiln_status kiln_team_close(kiln_team* team) {
  return guarded([&] { given(team, "team").team->close(); });
}
