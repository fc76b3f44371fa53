#include "engine/team_tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/state.hpp"
#include "kiln/error.hpp"
#include "manifest/key.hpp"
#include "team/exchange.hpp"

namespace kiln::engine {
namespace {

/// Of one launch: its symmetric workspaces lie behind each other, as jit::Executable places them.
std::int64_t symmetric_bytes(const manifest::Implementation& implementation, std::span<const std::int64_t> frame) {
  constexpr std::int64_t alignment = team::workspace_alignment;
  std::int64_t bytes = 0;
  for (const manifest::Workspace& each : implementation.workspaces)
    if (each.symmetric) bytes += (each.bytes.evaluate(frame).number + alignment - 1) / alignment * alignment;
  return bytes;
}

std::int64_t symmetric_bytes(const OpBucket& of, const manifest::DeviceFacts& device) {
  std::int64_t most = 0;
  for (const manifest::Implementation& each : of.op->implementations) {
    if (manifest::why_not_eligible({*of.op, device}, each, of.bucket)) continue;
    for (const manifest::Config& config : manifest::searched_space({*of.op, device}, each, of.bucket))
      most = std::max(most, symmetric_bytes(each, manifest::Variant{&each, config}.frame({*of.op, device}, of.bucket)));
  }
  return most;
}

std::string_view text_of(Retune retune) {
  switch (retune) {
    case Retune::none: return "none";
    case Retune::stale: return "stale";
    case Retune::all: return "all";
  }
  return "unknown";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

}  // namespace

void require_no_team(std::span<const OpBucket> buckets) {
  for (const OpBucket& each : buckets)
    if (each.op->is_of_team())
      throw Error(ErrorKind::bad_input,
                  fmt::format("{} is tuned by all ranks of a team at once, and this Tuner has none; set Options::team "
                              "on each rank",
                              each.op->name));
}

void require_same_tunes(team::Rendezvous& rendezvous, const TeamTunes& tunes) {
  std::string own = fmt::format("retune {}", text_of(tunes.retune));
  for (const OpBucket& each : tunes.buckets)
    if (each.op->is_of_team())
      own += "\n" + manifest::Bucket({*each.op, tunes.device, tunes.regime}, each.bucket).key();
  const team::Patience patience(rendezvous);  // rank 0 may sort many buckets of other ops first
  std::vector<std::vector<std::string>> all;
  for (const std::string& each : team::gather_texts(rendezvous, own)) all.push_back(lines_of(each));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const auto [other, first] = std::ranges::mismatch(all[rank], all.front());
    if (other == all[rank].end() && first == all.front().end()) continue;
    const auto text = [](const auto& lines, auto place) { return place == lines.end() ? std::string("none") : *place; };
    throw Error(ErrorKind::bad_input,
                fmt::format("team '{}': rank {} has {} to tune and rank 0 {}; the first that differ are {} and {}. "
                            "All ranks tune the same buckets, in the same order",
                            rendezvous.membership().name, rank, all[rank].size() - 1, all.front().size() - 1,
                            text(all[rank], other), text(all.front(), first)));
  }
}

void stop_together(State& state, const std::function<bool()>& is_stopped) {
  const std::lock_guard lock(state.team->collectives());
  const team::Patience patience(state.team->rendezvous());
  team::on_all_ranks(state.team->rendezvous(), "going on", [&] {
    const auto& own = state.options.stop_requested;
    if (is_stopped() || (own && own())) throw Error(ErrorKind::interrupted, "the tune was asked to stop");
  });
}

std::int64_t team_bytes_for(std::span<const OpBucket> buckets, const manifest::DeviceFacts& device) {
  std::int64_t most = 0;
  for (const OpBucket& each : buckets)
    if (each.op->is_of_team()) most = std::max(most, team::bytes_for_half(symmetric_bytes(each, device)));
  return most;
}

}  // namespace kiln::engine
