// Attention over a sequence that is cut over the ranks of a team, all over one address space, and what is right.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "attention_context/gather.cuh"
#include "kernels.hpp"
#include "matrices.hpp"
#include "team_gemm.hpp"

namespace test {

using kiln::attention::Mask;

struct ContextProblem {
  std::vector<int> rows;  // of a sequence, by rank
  int batch = 1, heads = 1, key_heads = 1;
  float scale = 0.5f;
  int padding = 8;      // elements between rows of q, k, v and out
  int chunk_rows = 16;  // that a flag tells of
};

template <typename T, int head_dim, int value_dim, Mask mask, int World>
class Context {
 public:
  struct Rank {
    Matrix<T> q, k, v, out;
    Matrix<float> lse;       // a row a head
    Matrix<T> keys, values;  // as gathered
    std::vector<int> query_offsets, key_offsets;
    std::vector<double> wide_q, wide_k, wide_v;
  };

  explicit Context(ContextProblem of)
      : problem(std::move(of)),
        most_rows(static_cast<int>(std::bit_ceil(static_cast<unsigned>(*std::ranges::max_element(problem.rows))))),
        team(World, part_bytes(head_dim + value_dim) * World) {
    for (int rank = 0; rank < World; ++rank) {
      const auto seed = static_cast<std::uint32_t>(rank) * 3 + 1;
      const std::int64_t tokens = tokens_of(rank), all = std::int64_t{World} * most_tokens();
      const auto drawn = [&](int columns, std::uint32_t with) {
        return Matrix<T>::random(tokens, columns, columns + problem.padding, with);
      };
      const int out_columns = problem.heads * value_dim;
      Rank made = {drawn(problem.heads * head_dim, seed),
                   drawn(problem.key_heads * head_dim, seed + 1),
                   drawn(problem.key_heads * value_dim, seed + 2),
                   Matrix<T>(tokens, out_columns, out_columns + problem.padding),
                   Matrix<float>(problem.heads, tokens, tokens),
                   Matrix<T>(all, problem.key_heads * head_dim, problem.key_heads * head_dim),
                   Matrix<T>(all, problem.key_heads * value_dim, problem.key_heads * value_dim),
                   std::vector<int>(static_cast<std::size_t>(problem.batch) + 1, -7),
                   std::vector<int>(static_cast<std::size_t>(problem.batch) + 1, -7),
                   {},
                   {},
                   {}};
      made.wide_q = wide(made.q);
      made.wide_k = wide(made.k);
      made.wide_v = wide(made.v);
      ranks.push_back(std::move(made));
    }
  }

  ContextProblem problem;
  int most_rows;
  Team team;
  std::vector<Rank> ranks;

  Rank& at(int rank) { return ranks[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int rows_of(int rank) const { return problem.rows[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int tokens_of(int rank) const { return problem.batch * rows_of(rank); }
  [[nodiscard]] int most_tokens() const { return problem.batch * most_rows; }
  kiln::team::Peers pushed_keys() { return team.workspace(); }
  kiln::team::Peers pushed_values() {
    kiln::team::Peers made = team.workspace();
    for (int rank = 0; rank < World; ++rank) made.of[rank] += part_bytes(head_dim) * World;
    return made;
  }

  TeamPass gather(std::uint32_t seed) {
    return {{.grid = {3}, .block = {32}, .seed = seed}, [this](int, int rank) {
              Rank& its = at(rank);
              attention_context_gather<World, mask, 32>(
                  {words(its.k), {its.k.stride() / 8}}, {words(its.v), {its.v.stride() / 8}}, words(its.keys),
                  words(its.values), its.query_offsets.data(), its.key_offsets.data(), problem.batch, rows_of(rank),
                  problem.key_heads * head_dim / 8, problem.key_heads * value_dim / 8, most_tokens(),
                  problem.chunk_rows, pushed_keys(), pushed_values(), team.argument(rank));
            }};
  }

  /// The largest distance of `rank`'s out and lse from what is right; infinite where anything else was written.
  double error(int rank) {
    Rank& its = at(rank);
    double largest = its.out.margins_untouched() && its.lse.margins_untouched() ? 0 : INFINITY;
    for (int token = 0; token < tokens_of(rank); ++token) {
      for (int head = 0; head < problem.heads; ++head) largest = std::max(largest, error_of_row(rank, token, head));
    }
    return largest;
  }
  /// Over all ranks.
  double error() {
    double largest = 0;
    for (int rank = 0; rank < World; ++rank) largest = std::max(largest, error(rank));
    return largest;
  }
  /// Whether all of `rank`'s out and lse is NaN.
  bool is_spoilt(int rank) {
    Rank& its = at(rank);
    for (std::int64_t token = 0; token < its.out.rows(); ++token) {
      for (std::int64_t column = 0; column < its.out.columns(); ++column)
        if (!std::isnan(its.out.value(token, column))) return false;
      for (int head = 0; head < problem.heads; ++head)
        if (!std::isnan(its.lse.at(head, token))) return false;
    }
    return true;
  }
  /// Fills results and what an earlier launch gathered, so that a kernel is seen to write NaN.
  void fill_results(int rank) {
    Rank& its = at(rank);
    for (Matrix<T>* each : {&its.out, &its.keys, &its.values}) {
      for (std::int64_t row = 0; row < each->rows(); ++row)
        for (std::int64_t column = 0; column < each->columns(); ++column)
          each->at(row, column) = kiln::from_float<T>(1.0f);
    }
    for (std::int64_t token = 0; token < its.out.rows(); ++token)
      for (int head = 0; head < problem.heads; ++head) its.lse.at(head, token) = 1.0f;
  }

  static uint4* words(Matrix<T>& of) { return reinterpret_cast<uint4*>(of.data()); }

 private:
  [[nodiscard]] std::int64_t part_bytes(int columns) const {
    return std::int64_t{most_tokens()} * problem.key_heads * columns * static_cast<std::int64_t>(sizeof(T));
  }
  static std::vector<double> wide(Matrix<T>& of) {
    std::vector<double> made;
    for (std::int64_t row = 0; row < of.rows(); ++row)
      for (std::int64_t column = 0; column < of.columns(); ++column) made.push_back(of.value(row, column));
    return made;
  }

  double error_of_row(int rank, int token, int head) {
    const int sequence = token / rows_of(rank), row = token % rows_of(rank);
    const int key_head = head / (problem.heads / problem.key_heads);
    const double* const query = &at(rank).wide_q[static_cast<std::size_t>((token * problem.heads + head) * head_dim)];
    std::vector<double> right(value_dim);
    double sum = 0;
    for (int of = 0; of < (mask == Mask::causal ? rank + 1 : World); ++of) {
      for (int key = 0; key < (mask == Mask::causal && of == rank ? row + 1 : rows_of(of)); ++key) {
        const auto of_key = static_cast<std::size_t>((sequence * rows_of(of) + key) * problem.key_heads + key_head);
        double dot = 0;
        for (std::size_t i = 0; i < head_dim; ++i) dot += query[i] * at(of).wide_k[of_key * head_dim + i];
        const double weight = std::exp(dot * problem.scale);
        sum += weight;
        for (std::size_t i = 0; i < value_dim; ++i) right[i] += weight * at(of).wide_v[of_key * value_dim + i];
      }
    }
    double largest = distance(at(rank).lse.at(head, token), std::log(sum));
    for (int i = 0; i < value_dim; ++i)
      largest = std::max(
          largest, distance(at(rank).out.value(token, head * value_dim + i), right[static_cast<std::size_t>(i)] / sum));
    return largest;
  }
};

}  // namespace test
