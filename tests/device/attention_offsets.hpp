// Offsets that do not cut their tensors: what kernels report of them, and that other sequences are right.
#pragma once

#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
// What kernels include comes after what they take for built in.
#include "attention.hpp"

namespace test {

constexpr unsigned long long report_of(int length, int bound) {
  return static_cast<unsigned long long>(bound) << 32 | static_cast<unsigned>(length);
}

/// `launch` takes the problem and the longest sequence's queries. `queries_may_fall`: results before the last offset need not be below it.
template <typename Of, typename Launch>
void check_reports_of_offsets(Launch launch, double close, bool queries_may_fall = true) {
  const AttentionProblem problem = {.lengths = {{40, 50}, {20, 30}, {9, 12}}, .after = 0};
  {
    CAPTURE("offsets that cut the tensors");
    Of of(problem);
    launch(of, 40);
    CHECK(of.reports[0] == 0);
    CHECK(of.reports[1] == 0);
    CHECK(of.error() < close);
  }
  {
    CAPTURE("offsets past the tensors");
    Of of(problem);
    of.told_query_offsets.back() += 1000;
    of.told_key_offsets.back() = 1 << 30;
    launch(of, 40);
    CHECK(of.reports[0] == report_of(of.rows(true) + 1000, of.rows(true)));
    CHECK(of.reports[1] == report_of(1 << 30, of.rows(false)));
    CHECK(of.error() < close);
  }
  {
    CAPTURE("offsets of keys that fall, or are negative");
    Of of(problem);
    of.told_key_offsets.back() = of.key_offsets[2] - 7;
    launch(of, 40);
    CHECK(of.reports[0] == 0);
    CHECK(of.reports[1] == report_of(-7, of.rows(false)));
    of.problem.lengths.back().second = 0;
    CHECK(of.error() < close);
    of.told_key_offsets.back() = -5;
    launch(of, 40);
    CHECK(of.reports[1] == report_of(-5, of.rows(false)));
  }
  if (!queries_may_fall) return;
  CAPTURE("offsets of queries that fall");
  Of of(problem);
  of.told_query_offsets.back() = of.query_offsets[2] - 2;
  launch(of, 40);
  CHECK(of.reports[0] == report_of(-2, 40));
  CHECK(of.reports[1] == 0);
  of.problem.lengths.back().first = 0;
  CHECK(of.error() < close);
}

}  // namespace test
