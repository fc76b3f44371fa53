#include "cli/bench/idle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "cli/units.hpp"

namespace kiln::cli::bench {
namespace {

constexpr std::size_t most_wider = 3;
// With less work a multiprocessor, the kernel takes about as long as its launch.
constexpr double least_bytes = 4096, least_flops = 65536;

bool has_work(const manifest::Site& site, const Problem& problem) {
  const manifest::Op& op = *site.op;
  const auto frame = manifest::frame_of(site, problem);
  const manifest::Value bytes = op.cost_bytes.evaluate(frame), flops = op.cost_flops.evaluate(frame);
  const auto units = static_cast<double>(site.device->sm_count());
  return static_cast<double>(bytes.number) >= units * least_bytes ||
         static_cast<double>(flops.number) >= units * least_flops || (bytes.number == 0 && flops.number == 0);
}

/// Another implementation is farther than any config of the same implementation.
std::size_t distance(const manifest::Variant& a, const manifest::Variant& b) {
  if (a.implementation != b.implementation) return manifest::max_parameters + 1;
  std::size_t differing = 0;
  for (std::size_t i = 0; i < a.config.size(); ++i) differing += a.config[i] != b.config[i] ? 1U : 0U;
  return differing;
}

}  // namespace

std::int64_t blocks_of(const manifest::Site& site, const manifest::Variant& contender, const Problem& problem) {
  const auto frame = contender.frame(site, problem);
  std::int64_t most = 0, most_read = -1;
  for (const manifest::Pass& pass : contender.implementation->passes) {
    if (pass.when && !pass.when->evaluate(frame).truth()) continue;
    std::int64_t blocks = 1;
    for (const manifest::Expression& extent : pass.grid) {
      const manifest::Value value = extent.evaluate(frame);
      if (!value.ok() || value.number < 1 || __builtin_mul_overflow(blocks, value.number, &blocks)) return 0;
    }
    if (pass.model && pass.model->busy_blocks)
      if (const manifest::Value busy = pass.model->busy_blocks->evaluate(frame); busy.ok())
        blocks = std::min(blocks, busy.number);
    const manifest::Value read =
        pass.model && pass.model->read_bytes ? pass.model->read_bytes->evaluate(frame) : manifest::Value{};
    if (std::tie(read.number, blocks) > std::tie(most_read, most))
      std::tie(most_read, most) = std::pair(read.number, blocks);
  }
  return most;
}

std::optional<Idle> idle_launch(const manifest::Site& site, const manifest::Variant& contender,
                                const Problem& problem) {
  const manifest::Op& op = *site.op;
  const manifest::DeviceFacts& device = *site.device;
  Idle idle;
  idle.blocks = blocks_of(site, contender, problem);
  if (idle.blocks == 0 || 2 * idle.blocks >= device.sm_count() || !has_work(site, problem)) return std::nullopt;
  std::vector<std::tuple<std::size_t, double, manifest::Variant>> wider;
  for (const manifest::Implementation& implementation : op.implementations) {
    if (manifest::why_not_eligible(site, implementation, problem)) continue;
    for (manifest::Config& config : manifest::searched_space(site, implementation, problem)) {
      manifest::Variant other{&implementation, std::move(config)};
      const std::int64_t blocks = blocks_of(site, other, problem);
      if (blocks < 2 * idle.blocks) continue;
      const double from_full =
          std::abs(std::log2(static_cast<double>(blocks) / static_cast<double>(device.sm_count())));
      wider.emplace_back(distance(contender, other), from_full, std::move(other));
    }
  }
  if (wider.empty()) return std::nullopt;
  std::stable_sort(wider.begin(), wider.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  for (std::size_t i = 0; i < std::min(wider.size(), most_wider); ++i) idle.wider.push_back(std::get<2>(wider[i]));
  return idle;
}

std::string text_of_idle(std::int64_t blocks, std::string_view wider, std::int64_t wider_blocks,
                         const manifest::DeviceFacts& device) {
  return fmt::format("{} on {} multiprocessors, so {} have none; {} has {}", counted(blocks, "block"),
                     device.sm_count(), device.sm_count() - blocks, wider, wider_blocks);
}

}  // namespace kiln::cli::bench
