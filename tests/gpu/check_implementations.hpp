// An op's implementations against its reference, at one problem.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "gpu/fixture.hpp"

namespace kiln::gpu_tests {

inline constexpr std::size_t configs_tried = 3;    // of each implementation and problem, besides its default
inline constexpr std::size_t configs_outside = 1;  // and of those that no tune would try

inline constexpr int draws = 2000;  // of configs of which few are legal

/// Legal configs that no tune would try, and that a record may name all the same.
inline std::vector<manifest::Config> outside_search(const manifest::Op& op,
                                                    const manifest::Implementation& implementation,
                                                    const Problem& bucket, const manifest::DeviceFacts& device,
                                                    std::mt19937& generator) {
  std::vector<manifest::Config> found;
  for (int draw = 0; draw < draws && found.size() < configs_outside && !implementation.search.empty(); ++draw) {
    manifest::Config config;
    for (const manifest::Parameter& each : implementation.parameters)
      config.push_back(each.values[generator() % each.values.size()]);
    if (manifest::Variant{&implementation, config}.broken_constraint({op, device}, bucket)) continue;
    const auto frame = manifest::Variant{&implementation, config}.frame({op, device}, bucket);
    const auto holds = [&](const manifest::Expression& each) { return each.evaluate(frame).truth(); };
    if (!std::ranges::all_of(implementation.search, holds)) found.push_back(std::move(config));
  }
  return found;
}

inline std::vector<manifest::Config> sample(const manifest::Implementation& implementation,
                                            std::vector<manifest::Config> space, std::mt19937& generator) {
  std::shuffle(space.begin(), space.end(), generator);
  if (space.size() > configs_tried) space.resize(configs_tried);
  space.insert(space.begin(), implementation.default_config);
  return space;
}

/// Integer run-time values by name.
inline tune::Placement placed(const manifest::Op& op, const std::vector<std::pair<const char*, std::int64_t>>& values,
                              std::int64_t offset_elements = 0) {
  tune::Placement placement;
  placement.offset_elements = offset_elements;
  for (const auto& [name, value] : values)
    for (std::size_t i = 0; i < op.runtime.size(); ++i)
      if (op.runtime[i].name == name)
        placement.runtime.push_back({{static_cast<std::uint8_t>(i), RuntimeId::Kind::integer}, value});
  REQUIRE(placement.runtime.size() == values.size());
  return placement;
}

using Candidate = manifest::Variant;

/// Every compile is begun before the first is waited for.
inline std::vector<Candidate> candidates(Fixture& fixture, const manifest::Op& op, const Problem& bucket,
                                         std::mt19937& generator) {
  std::vector<Candidate> result;
  for (const manifest::Implementation& implementation : op.implementations) {
    if (implementation.is_library() || manifest::why_not_eligible({op, fixture.facts()}, implementation, bucket))
      continue;
    std::vector<manifest::Config> tried =
        sample(implementation, manifest::search_space({op, fixture.facts()}, implementation, bucket), generator);
    for (manifest::Config& config : outside_search(op, implementation, bucket, fixture.facts(), generator))
      tried.push_back(std::move(config));
    for (manifest::Config& config : tried) {
      const auto frame = manifest::Variant{&implementation, config}.frame({op, fixture.facts()}, bucket);
      if (jit::broken_fixed_constraint(op, implementation, frame)) continue;
      fixture.cubins.prefetch(jit::specialise(op, implementation, frame, fixture.arch()));
      result.push_back({&implementation, std::move(config)});
    }
  }
  return result;
}

/// A sample of the configs of each implementation but a library's that is eligible, at `problem`'s sizes and as `placement` lays tensors.
inline void check_all(Fixture& fixture, const manifest::Op& op, const Problem& problem,
                      const tune::Placement& placement, std::mt19937& generator) {
  const Problem bucket = manifest::bucket_of(op, problem);
  const std::vector<Candidate> tried = candidates(fixture, op, bucket, generator);
  tune::VerificationCase verified({op, fixture.facts()}, problem, fixture.arch(), fixture.cubins, generator(),
                                  fixture.stream.handle());
  verified.retarget(problem, generator(), fixture.stream.handle(), placement);
  int launched = 0;
  for (const Candidate& candidate : tried) {
    const manifest::Implementation& implementation = *candidate.implementation;
    const jit::Executable executable = fixture.load(op, implementation, bucket, candidate.config);
    if (!verified.admits(executable)) continue;
    const tune::Check check = verified.verify(executable, fixture.stream.handle());
    CHECK_MESSAGE(check.right,
                  fmt::format("{} {} {} {}: {}", op.name, manifest::to_string(op, problem), implementation.name,
                              manifest::to_string(implementation, candidate.config), check.reason));
    ++launched;
  }
  CHECK_MESSAGE(launched > 0, fmt::format("nothing serves {} {}", op.name, manifest::to_string(op, problem)));
}

}  // namespace kiln::gpu_tests
