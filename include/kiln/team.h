// Teams in C99: the ranks that compute one op together, a process each. docs/teams.md says what they share.
// Part of kiln/kiln.h, which says how errors, threads and memory are treated.
#ifndef KILN_TEAM_H
#define KILN_TEAM_H

#include "kiln/kiln.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a rank takes part. Negative, 0 and null are the defaults of kiln/team.hpp.
typedef struct kiln_team_options {
  size_t size;
  int32_t device;  // ordinal of the rank's GPU; negative: the launcher's local rank, else the only one
  int32_t reserved;
  int64_t bytes;  // of symmetric memory on each rank
  int64_t timeout_ms, launch_timeout_ms;
  const char* address;  // "HOST:PORT" for ranks on several hosts; null: one host
} kiln_team_options;
#define KILN_TEAM_OPTIONS_INIT \
  { sizeof(kiln_team_options), -1, 0, 0, 0, 0, 0 }

typedef struct kiln_team_info {
  size_t size;
  const char* name;  // belongs to the team
  int32_t rank, world, device, reserved;
  int64_t bytes;
} kiln_team_info;
#define KILN_TEAM_INFO_INIT \
  { sizeof(kiln_team_info), 0, 0, 0, 0, 0, 0 }

// A name that no other team has, for one rank to make and hand to the other ranks; the caller's to free.
KILN_API kiln_status kiln_team_name(char** name);
// Meets the other ranks, which were given the same name and world; null options are the defaults. The team is the
// caller's until kiln_team_destroy(); engines that were made with it keep it alive. Blocks until every rank has come.
KILN_API kiln_status kiln_team_create(int32_t rank, int32_t world, const char* name, const kiln_team_options* options,
                                      kiln_team** team);
// The same with rank, world and name from the variables of torchrun, Open MPI's mpirun or Slurm's srun. Blocks.
KILN_API kiln_status kiln_team_from_launcher(const kiln_team_options* options, kiln_team** team);
KILN_API void kiln_team_destroy(kiln_team* team);
KILN_API kiln_status kiln_team_get_info(const kiln_team* team, kiln_team_info* info);
// Collective: serves again after KILN_TEAM_FAILED where no rank has ended. One thread at a time. Blocks.
KILN_API kiln_status kiln_team_reset(kiln_team* team);
// Collective: frees what the ranks share. No kernel of this process may use it any more. One thread at a time. Blocks.
KILN_API kiln_status kiln_team_close(kiln_team* team);

#ifdef __cplusplus
}
#endif

#endif
