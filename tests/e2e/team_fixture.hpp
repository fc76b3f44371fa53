// A rank of a team with its engine, and an op that it launches with the others.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "e2e/engine_fixture.hpp"
#include "e2e/graph.hpp"
#include "kiln/team.hpp"
#include "team/ranks.hpp"

namespace e2e_team {

using namespace kiln;
using namespace kiln::test;

inline constexpr std::int64_t cols = 64, team_bytes = std::int64_t{4} << 20;

/// One rank: its machine, its team and an engine with a file of its own.
struct Rank {
  explicit Rank(const team::Membership& of, std::chrono::milliseconds timeout = ample, Options chosen = {})
      : Rank(of, TeamOptions{chosen.device, team_bytes, timeout}, chosen) {}
  Rank(const team::Membership& of, const TeamOptions& options, Options chosen = {})
      : machine(chosen.device), team(std::make_shared<Team>(of.rank, of.world, of.name, options)) {
    if (!chosen.overlay) chosen.overlay = folder / "overlay.kiln";
    chosen.team = team;
    chosen.compile_workers = 1;
    engine = std::make_unique<Engine>(chosen);
  }

  e2e::Machine machine;
  e2e::TemporaryFolder folder;
  std::shared_ptr<Team> team;
  std::unique_ptr<Engine> engine;
};

/// y = the rows of all ranks, in f32. A rank's values tell the rank, the row and the step.
class Gather {
 public:
  Gather(const Rank& of, std::int64_t rows, std::int64_t stride, const char* ranks = "any")
      : op(of.engine->op("all_gather")),
        problem(op.problem(
            {{"rows", rows}, {"cols", cols}, {"world", of.team->world()}, {"dtype", "f32"}, {"ranks", ranks}})),
        rank_(of.team->rank()),
        world_(of.team->world()),
        rows_(rows),
        stride_(stride),
        x_(static_cast<std::size_t>(rows * cols)),
        y_(static_cast<std::size_t>(world_ * stride * cols)) {
    arguments = op.arguments({{"x", x_.address()}, {"y", y_.address()}, {"rank_stride", stride}});
  }

  void set(float step) const {
    std::vector<float> values(static_cast<std::size_t>(rows_ * cols));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(rank_, i, step);
    x_.upload(values);
    y_.upload(std::vector<float>(static_cast<std::size_t>(world_ * stride_ * cols), 0));
  }
  /// "right", "NaN" where the parts of other ranks are, or the first element that differs.
  [[nodiscard]] std::string outcome(const std::vector<std::int64_t>& rows, float step) const {
    const std::vector<float> got = y_.download();
    for (int rank = 0; rank < world_; ++rank)
      for (std::size_t i = 0; i < static_cast<std::size_t>(rows[static_cast<std::size_t>(rank)] * cols); ++i) {
        const float each = got[static_cast<std::size_t>(rank * stride_ * cols) + i];
        if (std::isnan(each)) return "NaN";
        if (each != value(rank, i, step)) return fmt::format("rank {} element {} is {}", rank, i, each);
      }
    return "right";
  }
  Origin launch(const Rank& of) const { return op.launch(problem, arguments, of.machine.stream()); }

  Op op;
  Problem problem;
  Arguments arguments;

 private:
  static float value(int rank, std::size_t i, float step) {
    return static_cast<float>(1000 * rank) + static_cast<float>(i % 251) + 10000 * step;
  }
  int rank_, world_;
  std::int64_t rows_, stride_;
  e2e::Floats x_, y_;
};

}  // namespace e2e_team
