#include "kiln/team.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <random>
#include <utility>

#include "kiln/error.hpp"
#include "team/exchange.hpp"
#include "team/peer_links.hpp"
#include "team/state.hpp"

namespace kiln {
namespace team {
namespace {

int visible_devices() {
  int count = 0;
  cuda::check(cuda::Driver::get().cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

/// With timeouts of a year at most: longer ones are as good as none, and their sums would overflow.
TeamOptions checked(TeamOptions options) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 46;
  if (options.bytes > most_bytes)
    throw Error(ErrorKind::bad_input,
                fmt::format("TeamOptions::bytes is {}, expected {} at most", options.bytes, most_bytes));
  constexpr std::chrono::milliseconds longest = std::chrono::hours(24 * 365);
  options.timeout = std::min(options.timeout, longest);
  options.launch_timeout = std::min(options.launch_timeout.value_or(options.timeout), longest);
  return options;
}

std::unique_ptr<TeamState> sharing(std::unique_ptr<TeamState> state, const TeamOptions& options) {
  state->share_memory(options.bytes);
  return state;
}

}  // namespace

std::unique_ptr<TeamState> launched_state(const TeamOptions& options) {
  TeamOptions chosen = options;
  const LaunchedRank launched = launched_rank(options.address);
  chosen.address = launched.address;
  return std::make_unique<TeamState>(launched.membership, chosen, launched.local_rank);
}

int chosen_device(std::optional<int> asked, std::optional<int> local_rank, int visible) {
  if (asked) return *asked;
  if (local_rank && *local_rank < visible) return *local_rank;
  if (visible == 1) return 0;
  throw Error(ErrorKind::bad_input,
              fmt::format("a team was asked for without a device, and this process sees {} GPUs{}; give "
                          "TeamOptions::device",
                          visible, local_rank ? fmt::format(" and has the local rank {}", *local_rank) : ""));
}

TeamState::TeamState(const Membership& membership, const TeamOptions& options, std::optional<int> local_rank)
    : rendezvous(membership, checked(options).timeout, options.address),
      launch_timeout(*checked(options).launch_timeout) {
  on_all_ranks(rendezvous, "opening its device", [&] {
    const int device = chosen_device(options.device, local_rank, visible_devices());
    context = std::make_unique<cuda::Context>(device);
  });
  const cuda::Context::Scope scope(*context);
  link = options.address.empty() ? slowest_link(rendezvous, *context) : manifest::TeamLink::network;
}

void TeamState::share_memory(std::int64_t bytes) {
  const cuda::Context::Scope scope(*context);
  if (link != manifest::TeamLink::network) memory.emplace(rendezvous, *context, bytes);
  on_all_ranks(rendezvous, "allocating host memory",
               [&] { member.emplace(rendezvous, memory ? &*memory : nullptr, *context, launch_timeout, link); });
}

manifest::DeviceFacts TeamState::facts() const {
  manifest::DeviceFacts facts = context->info().facts;
  facts.link = link;
  return facts;
}

TeamState& state_of(Team& team) noexcept { return *team.state_; }

std::shared_ptr<Team> team_of(std::unique_ptr<TeamState> state) {
  return std::shared_ptr<Team>(new Team(std::move(state)));
}

}  // namespace team

Team::Team(int rank, int world, const std::string& name, const TeamOptions& options)
    : Team(team::sharing(std::make_unique<team::TeamState>(team::Membership{rank, world, name}, options, std::nullopt),
                         options)) {}

Team::Team(const TeamOptions& options) : Team(team::sharing(team::launched_state(options), options)) {}

Team::Team(std::unique_ptr<team::TeamState> state) : state_(std::move(state)) {}

Team::~Team() {
  if (cuda::is_forked()) static_cast<void>(state_.release());  // its driver, threads and sockets are the parent's
}

int Team::rank() const noexcept { return state_->rendezvous.membership().rank; }
int Team::world() const noexcept { return state_->rendezvous.membership().world; }
const std::string& Team::name() const noexcept { return state_->rendezvous.membership().name; }
std::int64_t Team::bytes() const noexcept { return state_->member->bytes(); }
std::chrono::milliseconds Team::timeout() const noexcept { return state_->rendezvous.timeout(); }
int Team::device() const noexcept { return state_->context->info().ordinal; }
void Team::reset() {
  cuda::require_not_forked();
  const std::lock_guard lock(state_->member->collectives());
  state_->member->reset();
}
void Team::close() {
  cuda::require_not_forked();
  const std::lock_guard lock(state_->member->collectives());
  state_->member->close();
  if (state_->memory)
    state_->memory->close(state_->rendezvous);
  else
    state_->rendezvous.barrier();
}

std::string unique_team_name() {
  std::random_device random;
  std::string name = "kiln/";
  for (int i = 0; i < 4; ++i) name += fmt::format("{:08x}", random());
  return name;
}

}  // namespace kiln
