#include "tune/team_tunes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/error.hpp"
#include "manifest/variant.hpp"
#include "team/binding.hpp"
#include "team/exchange.hpp"
#include "team/protocol.hpp"

namespace kiln::tune {
namespace {

/// Of one launch: its symmetric workspaces lie behind each other, as jit::Executable places them.
std::int64_t symmetric_bytes(const manifest::Implementation& implementation, std::span<const std::int64_t> frame) {
  constexpr std::int64_t alignment = team::workspace_alignment;
  std::int64_t bytes = 0;
  for (const manifest::Workspace& each : implementation.workspaces)
    if (each.symmetric) bytes += (each.bytes.evaluate(frame).number + alignment - 1) / alignment * alignment;
  return bytes;
}

std::int64_t symmetric_bytes(const manifest::Bucket& bucket) {
  std::int64_t most = 0;
  for (const manifest::Implementation& each : bucket.op->implementations) {
    if (manifest::why_not_eligible(bucket, each, bucket.edge)) continue;
    for (const manifest::Config& config : manifest::searched_space(bucket, each, bucket.edge))
      most = std::max(most, symmetric_bytes(each, manifest::Variant{&each, config}.frame(bucket, bucket.edge)));
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

void require_no_team(std::span<const manifest::OpBucket> buckets) {
  for (const manifest::OpBucket& each : buckets)
    if (each.is_of_team())
      throw Error(ErrorKind::bad_input,
                  fmt::format("{} is tuned by all ranks of a team at once, and this Tuner has none; set Options::team "
                              "on each rank",
                              each.op->name));
}

void require_same_tunes(team::Rendezvous& rendezvous, std::span<const manifest::Bucket> buckets, Retune retune) {
  std::string own = fmt::format("retune {}", text_of(retune));
  for (const manifest::Bucket& each : buckets)
    if (each.op->is_of_team()) own += "\n" + each.key();
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

std::int64_t team_bytes_for(std::span<const manifest::Bucket> buckets) {
  std::int64_t most = 0;
  for (const manifest::Bucket& each : buckets)
    if (each.op->is_of_team()) most = std::max(most, team::bytes_for_half(symmetric_bytes(each)));
  return most;
}

}  // namespace kiln::tune
