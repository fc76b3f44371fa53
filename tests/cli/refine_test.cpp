// What kiln tune --refine decides: where a bucket is cut, and which parts keep the config tuned at their upper end.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "cli/bench/splitting.hpp"
#include "kiln/error.hpp"

namespace {

using kiln::Error;
using kiln::ErrorKind;
using kiln::cli::bench::Contender;
using kiln::cli::bench::cuts_of;
using kiln::cli::bench::Duel;
using kiln::cli::bench::find_rival;
using kiln::cli::bench::Serving;
using kiln::cli::bench::split;
using kiln::cli::bench::Splitting;
using kiln::cli::bench::Timed;
using kiln::cli::bench::top_part_from;
using Sizes = std::vector<std::int64_t>;

Contender config(std::int64_t number) { return {nullptr, {number}}; }

Timed took(double ns) {
  Timed timed;
  timed.verdict = kiln::store::Verdict::ok;
  timed.samples_ns.assign(11, ns);
  return timed;
}

Duel duel_of(const Contender& tuned, double tuned_ns, const Contender& upper, double upper_ns) {
  Duel duel;
  duel.contenders = {tuned, upper};
  duel.timed = {took(tuned_ns), took(upper_ns)};
  duel.rival = 1;
  return duel;
}

/// The time of each of three configs at the sizes of a bucket's cuts.
const std::map<std::int64_t, std::vector<double>> times = {
    {896, {100, 90, 120}},
    {768, {95, 80, 79}},  // the third is a little faster than the second
    {640, {90, 75, 60}},
};

std::int64_t fastest_at(std::int64_t size) {
  const std::vector<double>& all = times.at(size);
  return std::min_element(all.begin(), all.end()) - all.begin();
}

bool always(std::int64_t, const Serving&) { return true; }

/// Splits at the cuts of (512, 1024], own being the first config; `at_cut` is called before each tune.
template <class AtCut, class Worth>
Splitting split_by_times(double threshold, std::vector<Contender>& uppers, const AtCut& at_cut, const Worth& worth) {
  const auto tune = [&](std::int64_t size) {
    at_cut(size);
    return Serving{config(fastest_at(size)), {}};
  };
  const auto duel = [&](std::int64_t size, const Serving& tuned, const Serving& upper) {
    uppers.push_back(upper.config);
    const auto ns = [&](const Serving& each) {
      return times.at(size)[static_cast<std::size_t>(each.config.config[0])];
    };
    return duel_of(tuned.config, ns(tuned), upper.config, ns(upper));
  };
  return split(cuts_of(513, 1024, 1, 3), {config(0), {}}, threshold, worth, tune, duel);
}
template <class AtCut>
Splitting split_by_times(double threshold, std::vector<Contender>& uppers, const AtCut& at_cut) {
  return split_by_times(threshold, uppers, at_cut, always);
}

Sizes kept(const Splitting& splitting) {
  Sizes edges;
  for (const auto& tried : splitting.tried)
    if (tried.is_kept) edges.push_back(tried.edge);
  return edges;
}

}  // namespace

TEST_CASE("a bucket is cut at equal sizes, from above to below") {
  CHECK(cuts_of(513, 1024, 1, 3) == Sizes{896, 768, 640});
  CHECK(cuts_of(513, 1024, 1, 1) == Sizes{768});
  CHECK(cuts_of(65, 128, 1, 2) == Sizes{106, 85});
  CHECK(cuts_of(72, 128, 8, 3) == Sizes{112, 96, 80});
  CHECK(cuts_of(72, 128, 8, 2) == Sizes{104, 80});  // 106 and 85 are no multiples of 8
}

TEST_CASE("what lies above all cuts begins a step above the first") {
  CHECK(top_part_from(513, 1024, 1, 3) == 897);
  CHECK(top_part_from(513, 1024, 1, 15) == 993);
  CHECK(top_part_from(72, 128, 8, 3) == 120);
  CHECK(top_part_from(3, 4, 1, 1) == 4);
  CHECK(top_part_from(513, 1024, 1, 0) == 0);
  CHECK(top_part_from(2, 2, 1, 3) == 0);
}

TEST_CASE("a bucket of few sizes is cut where it can be, and one of a single size nowhere") {
  CHECK(cuts_of(1, 1, 1, 3).empty());
  CHECK(cuts_of(2, 2, 1, 15).empty());
  CHECK(cuts_of(3, 4, 1, 3) == Sizes{3});
  CHECK(cuts_of(3, 4, 1, 1) == Sizes{3});
  CHECK(cuts_of(5, 8, 1, 3) == Sizes{7, 6, 5});
  CHECK(cuts_of(5, 8, 1, 15) == Sizes{7, 6, 5});
  CHECK(cuts_of(40, 64, 8, 15) == Sizes{56, 48, 40});
}

TEST_CASE("every cut is a size inside its bucket, and no part is larger than its share by more than a step") {
  CHECK(rc::check([] {
    const std::int64_t step = *rc::gen::inRange<std::int64_t>(1, 65);
    const std::int64_t low = step * *rc::gen::inRange<std::int64_t>(1, 1000);
    const std::int64_t high = low + step * *rc::gen::inRange<std::int64_t>(0, 2000);
    const int splits = *rc::gen::inRange(1, 16);
    const Sizes cuts = cuts_of(low, high, step, splits);
    RC_ASSERT(cuts.size() <= static_cast<std::size_t>(splits));
    std::int64_t above = high;
    for (const std::int64_t cut : cuts) {
      RC_ASSERT(cut % step == 0);
      RC_ASSERT(cut >= low);
      RC_ASSERT(cut < above);
      RC_ASSERT(above - cut <= (high - low + step) / (splits + 1) + step);
      above = cut;
    }
    RC_ASSERT(above - (low - step) <= (high - low + step) / (splits + 1) + step);
  }));
}

TEST_CASE(
    "a part is kept where its config beats that of the part above, and joined to it where it does not by enough") {
  std::vector<Contender> uppers;
  const Splitting splitting = split_by_times(0.03, uppers, [](std::int64_t) {});
  REQUIRE(splitting.tried.size() == 3);
  CHECK(kept(splitting) == Sizes{896, 640});
  CHECK(splitting.tried[0].duel.gain() == doctest::Approx(100.0 / 90 - 1));
  CHECK(splitting.tried[1].duel.gain() == doctest::Approx(80.0 / 79 - 1));
  CHECK(splitting.tried[2].duel.gain() == doctest::Approx(75.0 / 60 - 1));
  CHECK(uppers == std::vector<Contender>{config(0), config(1), config(1)});
  CHECK(splitting.ended_by == nullptr);
}

TEST_CASE("a cut that is not worth it is not tried, and what serves above it is asked about further down") {
  std::vector<Contender> uppers;
  Sizes tuned;
  std::vector<Serving> asked;
  const auto worth = [&](std::int64_t size, const Serving& serving) {
    asked.push_back(serving);
    return size != 768;
  };
  const Splitting splitting = split_by_times(
      0.03, uppers, [&](std::int64_t size) { tuned.push_back(size); }, worth);
  CHECK(tuned == Sizes{896, 640});
  CHECK(kept(splitting) == Sizes{896, 640});
  REQUIRE(asked.size() == 3);
  CHECK(asked[0].config == config(0));
  CHECK(asked[2].config == config(1));
}

TEST_CASE("a part with the config of the part above is joined to it without a comparison") {
  std::vector<Contender> uppers;
  const Splitting splitting = split_by_times(0.01, uppers, [](std::int64_t) {});
  CHECK(kept(splitting) == Sizes{896, 768});
  CHECK(splitting.tried.at(2).tuned == splitting.tried.at(1).tuned);
  CHECK(uppers == std::vector<Contender>{config(0), config(1)});
}

TEST_CASE("a bucket whose parts win nowhere stays whole") {
  std::vector<Contender> uppers;
  CHECK(kept(split_by_times(0.6, uppers, [](std::int64_t) {})).empty());
  CHECK(uppers == std::vector<Contender>{config(0), config(0), config(0)});
}

TEST_CASE("a part that fails, or is interrupted, ends the splitting and leaves the parts above it") {
  for (const ErrorKind kind : {ErrorKind::not_tuned, ErrorKind::interrupted}) {
    std::vector<Contender> uppers;
    Sizes asked;
    const Splitting splitting = split_by_times(0.01, uppers, [&](std::int64_t size) {
      asked.push_back(size);
      if (size == 768) throw Error(kind, "at 768");
    });
    CHECK(kept(splitting) == Sizes{896});
    CHECK(asked == Sizes{896, 768});
    CHECK(splitting.ended_at == 768);
    CHECK_THROWS_WITH_AS(std::rethrow_exception(splitting.ended_by), "at 768", Error);
  }
}

TEST_CASE("a duel is won beyond the threshold, or where nothing that is right would serve") {
  Duel duel = duel_of(config(1), 100, config(0), 104);
  CHECK(duel.is_won_by(0.03));
  CHECK_FALSE(duel.is_won_by(0.05));
  CHECK_FALSE(duel_of(config(1), 104, config(0), 100).is_won_by(0));
  duel.rival = 0;  // nothing else can serve there
  CHECK(duel.gain() == 0);
  CHECK_FALSE(duel.is_won_by(0));
  duel.is_walkover = true;
  CHECK(duel.is_won_by(0.05));
}

namespace {

/// A config of an implementation that a library computes.
Contender library_config(std::int64_t number) {
  static const kiln::spec::Implementation library = [] {
    kiln::spec::Implementation implementation;
    implementation.library = "cublaslt";
    return implementation;
  }();
  return {&library, {number}};
}

constexpr double refused = 0;

/// A duel over these contenders and their times, in the order of Refinery::duel_at.
Duel judged(const std::vector<std::pair<Contender, double>>& contenders, const Serving& tuned, const Serving& upper) {
  Duel duel;
  for (const auto& [contender, ns] : contenders) {
    duel.contenders.push_back(contender);
    duel.timed.push_back(took(ns));
    if (ns == refused) duel.timed.back().verdict = kiln::store::Verdict::launch_failed;
  }
  find_rival(duel, tuned, upper, config(9));  // the default
  return duel;
}

}  // namespace

TEST_CASE(
    "what there is to beat is what would serve: where a library refuses the size, its runner-up, then the default") {
  const Serving tuned{config(1), {}}, upper{library_config(4), config(2)};
  const Duel taken =
      judged({{config(1), 100}, {library_config(4), 103}, {config(2), 105}, {config(9), 300}}, tuned, upper);
  CHECK(taken.gain() == doctest::Approx(0.03));
  const auto against = [&](double runner_up_ns) {
    return judged({{config(1), 100}, {library_config(4), refused}, {config(2), runner_up_ns}, {config(9), 300}}, tuned,
                  upper);
  };
  CHECK(against(110).gain() == doctest::Approx(0.1));
  CHECK(against(110).is_won_by(0.03));
  CHECK_FALSE(against(101).is_won_by(0.03));
  CHECK(against(refused).gain() == doctest::Approx(2));
  const Serving bare{library_config(4), {}};
  CHECK(judged({{config(1), 100}, {library_config(4), refused}, {config(9), 300}}, tuned, bare).gain() ==
        doctest::Approx(2));
  CHECK(judged({{config(1), 100}, {library_config(4), refused}}, tuned, bare).is_walkover);
  const Serving same{config(2), {}};  // it serves these sizes as it is
  const Duel nothing = judged({{config(2), 100}, {library_config(4), refused}, {config(9), 300}}, same, upper);
  CHECK_FALSE(nothing.is_won_by(0));
}

TEST_CASE("a part's runner-up is kept where it is faster than what would serve without the library anyway") {
  const Serving tuned{library_config(4), config(1)};
  const auto keeps = [&](double own_ns, double above_ns, const Serving& upper, const Contender& above) {
    return judged({{library_config(4), 50}, {above, above_ns}, {config(9), 300}, {config(1), own_ns}}, tuned, upper)
        .needs_runner_up;
  };
  const Serving own_kernel{config(2), {}}, library{library_config(3), config(2)};
  for (const Serving& upper : {own_kernel, library}) {
    CHECK(keeps(90, 100, upper, config(2)));
    CHECK_FALSE(keeps(100, 90, upper, config(2)));
    CHECK_FALSE(keeps(100, 100, upper, config(2)));
    CHECK(keeps(200, refused, upper, config(2)));
    CHECK_FALSE(keeps(400, refused, upper, config(2)));  // slower than the default
    CHECK_FALSE(keeps(refused, 100, upper, config(2)));
  }
  const Serving same{library_config(3), config(1)};
  CHECK_FALSE(judged({{library_config(4), 50}, {config(1), 90}, {config(9), 300}}, tuned, same).needs_runner_up);
  const Serving of_default{library_config(4), config(9)}, bare{library_config(3), {}};
  CHECK(judged({{library_config(4), 50}, {config(9), 300}}, of_default, bare).needs_runner_up);
  CHECK_FALSE(
      judged({{config(5), 50}, {config(2), 90}, {config(9), 300}}, {config(5), {}}, own_kernel).needs_runner_up);
}

TEST_CASE("below a part whose runner-up was not needed the one above it stands behind the library") {
  std::vector<Serving> uppers;
  const auto split_with = [&](bool needs_runner_up) {
    uppers.clear();
    const auto tune = [](std::int64_t size) { return Serving{library_config(size), config(size)}; };
    const auto duel = [&](std::int64_t, const Serving& tuned, const Serving& upper) {
      uppers.push_back(upper);
      Duel won = duel_of(tuned.config, 50, upper.config, 100);
      won.needs_runner_up = needs_runner_up;
      return won;
    };
    split(Sizes{3, 2, 1}, {config(7), {}}, 0.03, always, tune, duel);
    return uppers.back();
  };
  CHECK(split_with(true) == Serving{library_config(2), config(2)});
  CHECK(split_with(false) == Serving{library_config(2), config(7)});
}
