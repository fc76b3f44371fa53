// Products with a collective, of all ranks of a team over one address space.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels.hpp"
#include "matrices.hpp"
#include "team.hpp"

namespace test {

/// One kernel of a launch; `kernel` is called with the number of the launch and the rank.
struct TeamPass {
  emulator::Launch launch;
  std::function<void(int, int)> kernel;
  unsigned resident = 0;  // clusters; 0: all
  int at_once = 1;        // grids of each rank that run at once, where one is right
};

/// `launches` of each rank but `absent`, each of these passes one after another. A launch begins with NaN in the half of the team's memory
/// that is free then.
inline void run_passes(Team& team, const std::vector<TeamPass>& passes, int launches, int absent = -1) {
  std::vector<emulator::Grid> grids;
  std::vector<int> last(static_cast<std::size_t>(team.world()), -1);  // grid of each rank
  for (int launch = 0; launch < launches; ++launch) {
    for (const TeamPass& pass : passes) {
      for (int rank = 0; rank < team.world(); ++rank) {
        if (rank == absent) continue;
        const bool first = &pass == passes.data();
        const auto poison = [&team, rank, first] {
          if (!first) return;
          const std::uint64_t half = team.argument(rank).half_bytes;
          std::memset(team.workspace().of[rank] + (team.control(rank).epoch & 1) * half, 0xff, half);
        };
        int& before = last[static_cast<std::size_t>(rank)];
        const emulator::Grid grid{pass.launch, [&pass, launch, rank] { pass.kernel(launch, rank); }, pass.resident,
                                  before, poison};
        grids.insert(grids.end(), static_cast<std::size_t>(pass.at_once), grid);
        before = static_cast<int>(grids.size()) - 1;
      }
    }
  }
  emulator::launch_together(grids);
}

/// x of each rank, whose products with its own w are gathered rows times w^T.
template <typename T>
struct GatheredProducts {
  struct Rank {
    Matrix<T> x, w, y, gathered, parts;
    std::vector<int> counts;
  };
  std::vector<int> rows;  // by rank
  std::int64_t n, k, rank_stride, most_rows;
  Team team;
  std::vector<Rank> ranks;

  GatheredProducts(std::vector<int> rows_of, std::int64_t columns, std::int64_t depth, std::int64_t stride,
                   std::int64_t most, std::int64_t symmetric_bytes)
      : rows(std::move(rows_of)),
        n(columns),
        k(depth),
        rank_stride(stride),
        most_rows(most),
        team(world(), symmetric_bytes) {
    for (int rank = 0; rank < world(); ++rank) {
      const auto seed = static_cast<std::uint32_t>(rank) * 2 + 1;
      ranks.push_back({Matrix<T>::random(rows[static_cast<std::size_t>(rank)], k, k, seed),
                       Matrix<T>::random(n, k, k, seed + 1), Matrix<T>(world() * rank_stride, n, n),
                       Matrix<T>(world() * rank_stride, k, k), Matrix<T>(world() * most_rows, k, k),
                       std::vector<int>(rows.size(), 77)});
    }
  }

  [[nodiscard]] int world() const { return static_cast<int>(rows.size()); }
  Rank& at(int rank) { return ranks[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::int64_t rows_of(int rank) const { return rows[static_cast<std::size_t>(rank)]; }

  /// Of `rank`'s y: the largest distance from what is right, infinite where anything else was written. Where all of `missing` is not NaN,
  /// infinite too; of it `written` rows are.
  double error(int rank, int missing = -1) {
    Rank& its = at(rank);
    double largest = its.y.margins_untouched() ? 0 : INFINITY;
    for (std::int64_t row = 0; row < its.y.rows(); ++row) {
      const int of = static_cast<int>(row / rank_stride);
      const std::int64_t within = row % rank_stride;
      for (std::int64_t column = 0; column < n; ++column) {
        const double found = its.y.value(row, column);
        if (within >= rows_of(of) || of == missing) {
          if (!std::isnan(found)) return INFINITY;
          continue;
        }
        double sum = 0;
        for (std::int64_t i = 0; i < k; ++i) sum += at(of).x.value(within, i) * its.w.value(column, i);
        largest = std::max(largest, distance(found, number_of(kiln::from_float<T>(static_cast<float>(sum)))));
      }
    }
    return largest;
  }

  /// Whether `rank`'s gathered rows are those of all, and nothing else was written.
  bool gathered_all(int rank) {
    Rank& its = at(rank);
    if (!its.gathered.margins_untouched()) return false;
    for (std::int64_t row = 0; row < its.gathered.rows(); ++row) {
      const int of = static_cast<int>(row / rank_stride);
      for (std::int64_t i = 0; i < k; ++i) {
        const double found = its.gathered.value(row, i);
        const bool is_row = row % rank_stride < rows_of(of);
        if (is_row ? found != at(of).x.value(row % rank_stride, i) : !std::isnan(found)) return false;
      }
    }
    return true;
  }
};

}  // namespace test
