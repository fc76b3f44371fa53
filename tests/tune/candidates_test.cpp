// Which configs a search gets to try, of kernels that run beside a library.
#include "tune/candidates.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "jit/executable.hpp"
#include "manifest/catalogue.hpp"
#include "manifest/problem.hpp"

using namespace kiln;
using namespace kiln::tune;

namespace {

const manifest::DeviceFacts h100 =
    *manifest::DeviceFacts::from_device_class("sm_90/mp132/l2_52428800/smem_232448/bus_5120");

Candidates candidates(const manifest::Op& op, const char* ranks, bool has_communicator) {
  const std::array settings = {manifest::Setting{"rows", "64"},    manifest::Setting{"n", "8192"},
                               manifest::Setting{"k", "4096"},     manifest::Setting{"world", "2"},
                               manifest::Setting{"dtype", "bf16"}, manifest::Setting{"ranks", ranks}};
  const Problem bucket = manifest::bucket_of(op, manifest::make_problem(op, settings));
  return candidates_of({{{op, h100}, bucket}, "sm_90a", false, has_communicator}, {});
}

std::set<std::string> implementations(const Candidates& of) {
  std::set<std::string> names;
  for (const Candidate& each : of.list) names.insert(each.implementation->name);
  return names;
}

/// A library that proposes algorithms of its own for each size where it is asked: 1000 times m, then one more for each rank.
class NotedLibraries final : public Libraries {
 public:
  std::vector<manifest::Config> candidates(const manifest::Site& site, const manifest::Implementation& implementation,
                                           const Problem& at, std::size_t at_most) override {
    const std::int64_t m = at.axes[axis_of(*site.op, "m")];
    asked[m] = std::max(asked[m], at_most);
    std::vector<manifest::Config> configs;
    for (std::size_t rank = 0; rank < at_most; ++rank) {
      configs.push_back(implementation.default_config);
      configs.back().front() = 1000 * m + static_cast<std::int64_t>(rank);
    }
    return configs;
  }
  std::optional<std::string> why_refused(const manifest::Site& site, const manifest::Variant& variant,
                                         const Problem& at) override {
    if (std::abs(at.axes[axis_of(*site.op, "m")] - variant.config.front() / 1000) >= refused_within) return {};
    return "too near";
  }
  static std::size_t axis_of(const manifest::Op& op, std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(op.axes, name, &manifest::Axis::name) - op.axes.begin());
  }
  [[nodiscard]] std::size_t most_at(std::int64_t m) const { return asked.contains(m) ? asked.at(m) : 0; }
  std::map<std::int64_t, std::size_t> asked;  // by m: the most algorithms
  std::int64_t refused_within = 0;            // of the size for which an algorithm was proposed
};

/// Of gemm's bucket that has `m` rows.
Candidates of_gemm(NotedLibraries& libraries, const char* m, const char* layout, const char* n = "4096",
                   const char* k = "4096") {
  static const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  const manifest::Op& op = *ops.op("gemm");
  const std::array settings = {manifest::Setting{"m", m}, manifest::Setting{"n", n}, manifest::Setting{"k", k},
                               manifest::Setting{"dtype", "bf16"}, manifest::Setting{"layout", layout}};
  CandidatesRequest request{{{op, h100}, manifest::bucket_of(op, manifest::make_problem(op, settings))}, "sm_90a"};
  request.libraries = &libraries;
  return candidates_of(request, {});
}

}  // namespace

TEST_CASE("a library is asked for many algorithms at sizes that are no multiples of 16, where such are legal") {
  NotedLibraries usual;
  const Candidates found = of_gemm(usual, "300", "nt");
  CHECK(usual.most_at(511) == 8);
  CHECK(usual.most_at(512) == 1);
  CHECK(std::ranges::count(found.sizes.ends.front(), 512) == 1);  // timed where they were
  CHECK(std::ranges::count(found.sizes.ends.front(), 511) == 0);
  CHECK(std::ranges::all_of(usual.asked, [](const auto& each) { return each.first % 16 != 0 || each.second == 1; }));

  NotedLibraries aligned;  // x lies along m: 16 bytes are 8 rows
  (void)of_gemm(aligned, "300", "tt");
  CHECK(aligned.most_at(504) == 8);
  CHECK(aligned.most_at(512) == 1);

  NotedLibraries one;
  (void)of_gemm(one, "1", "nt");
  CHECK(one.most_at(1) == 8);
}

TEST_CASE("a library is asked below multiples of 16 rows of a batch's products too") {
  const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  const manifest::Op& op = *ops.op("gemm_batched");
  const std::array settings = {manifest::Setting{"batch", "32"}, manifest::Setting{"m", "4096"},
                               manifest::Setting{"n", "4096"}, manifest::Setting{"k", "128"},
                               manifest::Setting{"dtype", "bf16"}};
  NotedLibraries libraries;
  CandidatesRequest request{{{op, h100}, manifest::bucket_of(op, manifest::make_problem(op, settings))}, "sm_90a"};
  request.libraries = &libraries;
  const Candidates found = candidates_of(request, {});
  CHECK(found.sizes.axes.size() == 2);
  CHECK(libraries.most_at(4095) == 8);
  CHECK(libraries.most_at(4096) == 1);
  const std::size_t columns = found.sizes.ends.back().size(), rows = found.sizes.ends.front().size();
  CAPTURE(rows);
  CAPTURE(columns);
  REQUIRE(rows > 1);
  REQUIRE(columns > 2);
  for (const std::size_t i : found.expectations.of_libraries) {
    const auto& is_near = found.expectations.proposed_near[i];
    REQUIRE(is_near.size() == rows * columns);
    const auto count = static_cast<std::size_t>(std::ranges::count(is_near, true));
    // This library proposes the same for all numbers of products.
    CHECK(count <= (found.list[i].config.front() % 1000 == 0 ? 5 : 1) * rows);
    CHECK(count >= 1);
  }
}

TEST_CASE("the second of what a library proposes at any size comes after the first of all sizes") {
  NotedLibraries libraries;
  const Candidates found = of_gemm(libraries, "300", "nt");
  std::vector<std::int64_t> ranks;
  for (const std::size_t i : found.expectations.of_libraries) ranks.push_back(found.list[i].config.front() % 1000);
  CHECK(ranks.size() > 100);
  CHECK(std::ranges::is_sorted(ranks));
  CHECK(ranks.back() > 0);
}

TEST_CASE("a library's algorithm is worth a sample near the sizes for which it was proposed, a kernel everywhere") {
  NotedLibraries libraries;
  const Candidates found = of_gemm(libraries, "300", "nt");
  const std::vector<std::int64_t>& ends = found.sizes.ends.front();
  REQUIRE(ends.size() > 12);
  for (std::size_t i = 0; i < found.list.size(); ++i) {
    const std::vector<bool>& is_near = found.expectations.proposed_near[i];
    REQUIRE(is_near.size() == ends.size());
    const auto count = static_cast<std::size_t>(std::ranges::count(is_near, true));
    if (!contains(found.expectations.of_libraries, i)) {
      CHECK(count == ends.size());
      continue;
    }
    const std::int64_t m = found.list[i].config.front() / 1000;
    const bool is_first = found.list[i].config.front() % 1000 == 0;
    std::size_t nearest = 0;
    for (std::size_t end = 1; end < ends.size(); ++end)
      if (std::abs(ends[end] - m) < std::abs(ends[nearest] - m)) nearest = end;
    CHECK(is_near[nearest]);
    CHECK(count <= (is_first ? 9 : 3));
    CHECK(count >= (is_first ? 5 : 2));
  }
}

TEST_CASE("an algorithm that is refused near the sizes for which it was proposed is worth a sample where it is legal") {
  NotedLibraries libraries;
  libraries.refused_within = 100;
  const Candidates found = of_gemm(libraries, "300", "nt");
  REQUIRE(!found.expectations.of_libraries.empty());
  for (const std::size_t i : found.expectations.of_libraries) {
    std::size_t sampled = 0;
    for (std::size_t size = 0; size < found.sizes.problems.size(); ++size)
      sampled += found.expectations.proposed_near[i][size] && found.expectations.legal[i][size] ? 1 : 0;
    CHECK(sampled > 0);
  }
}

TEST_CASE("products beside NCCL are candidates where the team has a communicator and ranks launch alike") {
  const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  for (const char* name : {"gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm"}) {
    CAPTURE(name);
    const manifest::Op& op = *ops.op(name);
    std::set<std::string> own = {"push_wgmma", "push_mma"};
    if (op.find("fused") != nullptr) own.insert("fused");
    CHECK(implementations(candidates(op, "any", true)) == own);
    CHECK(implementations(candidates(op, "alike", false)) == own);
    own.insert({"nccl_wgmma", "nccl_mma"});
    CHECK(implementations(candidates(op, "alike", true)) == own);
  }
}

TEST_CASE("a product beside NCCL has a model, several configs, and one that is tried first") {
  const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  for (const char* name : {"gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm"}) {
    CAPTURE(name);
    const Candidates found = candidates(*ops.op(name), "alike", true);
    const Expectations& expectations = found.expectations;
    CHECK(expectations.modelled_libraries == expectations.of_libraries);
    CHECK(found.has_baseline);
    CHECK_FALSE(found.list.front().implementation->is_library());
    for (const char* implementation : {"nccl_wgmma", "nccl_mma"}) {
      const auto is_of = [&](std::size_t i) { return found.list[i].implementation->name == implementation; };
      CHECK(std::ranges::count_if(expectations.modelled_libraries, is_of) >= 2);
      CHECK(std::ranges::any_of(expectations.tried_first, is_of));
    }
    std::set<double> times;
    for (const std::size_t i : expectations.modelled_libraries) {
      CHECK(expectations.expected_ns[i].back() > 1000);
      CHECK(expectations.expected_ns[i].back() < 1e7);
      times.insert(expectations.expected_ns[i].back());
      CHECK(found.list[i].specialisation.has_kernels());
      CHECK(found.list[i].specialisation.library == "nccl");
    }
    CHECK(times.size() > 4);  // the model tells tiles apart
  }
}

TEST_CASE("gemm_reduce_scatter's fused kernel is tried by clusters of two where tiles are many") {
  const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  const manifest::Op& op = *ops.op("gemm_reduce_scatter");
  const auto clusters = [&](const char* rows) {
    const std::array settings = {manifest::Setting{"rows", rows}, manifest::Setting{"n", "8192"},
                                 manifest::Setting{"k", "4096"}, manifest::Setting{"world", "2"},
                                 manifest::Setting{"dtype", "bf16"}};
    const Problem bucket = manifest::bucket_of(op, manifest::make_problem(op, settings));
    const Candidates found = candidates_of({{{op, h100}, bucket}, "sm_90a", false, false}, {});
    std::map<std::string, double> fastest;  // expected ns
    for (std::size_t i = 0; i < found.list.size(); ++i) {
      const Candidate& each = found.list[i];
      if (each.implementation->name != "fused") continue;
      const auto value = [&](const char* name) {
        const auto& all = each.implementation->parameters;
        const auto at = std::ranges::find(all, std::string(name), &manifest::Parameter::name);
        return std::to_string(each.config.at(static_cast<std::size_t>(at - all.begin())));
      };
      double& ns = fastest.try_emplace(value("cluster_m") + "x" + value("cluster_n"), 1e12).first->second;
      ns = std::min(ns, found.expectations.expected_ns[i].back());
    }
    return fastest;
  };
  const auto few = clusters("64"), many = clusters("4096");
  CHECK((few.size() == 1 && few.contains("1x1")));
  CHECK((many.size() == 3 && many.contains("1x1") && many.contains("2x1") && many.contains("1x2")));
  for (const auto& [cluster, ns] : many) CHECK((ns > 1e5 && ns < 1e7));
  CHECK(many.at("2x1") <= many.at("1x1"));  // w is read once for two blocks
}

TEST_CASE("a bucket of few sizes gets one where a tile's stair ends that is fastest between two others alone") {
  const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  const manifest::Op& op = *ops.op("all_gather_gemm");
  const std::array settings = {manifest::Setting{"rows", "397"}, manifest::Setting{"n", "28672"},
                               manifest::Setting{"k", "8192"}, manifest::Setting{"world", "2"},
                               manifest::Setting{"dtype", "bf16"}};
  const Problem bucket = manifest::bucket_of(op, manifest::make_problem(op, settings));
  const Candidates found = candidates_of({{{op, h100}, bucket}, "sm_90a", false, false}, {});
  REQUIRE(found.sizes.ends.size() == 1);
  CHECK(found.sizes.ends.front().size() <= 9);
  CHECK(std::ranges::count(found.sizes.ends.front(), 2 * 208) == 1);  // tiles of 208 rows, fewer than four of 128
}

TEST_CASE(
    "launches of a millisecond get an end where a tile fits the rows that is no longer the fastest at the next even one") {
  NotedLibraries none;
  const Candidates found = of_gemm(none, "2048", "nt", "8192", "28672");
  std::string ends;
  for (const std::int64_t each : found.sizes.ends.front()) ends += std::to_string(each) + " ";
  CAPTURE(ends);
  CHECK(std::ranges::count(found.sizes.ends.front(), 8 * 152) == 1);  // two waves of 152 x 256, three of all others
  CHECK(found.sizes.ends.front().size() <= 16);
}

TEST_CASE(
    "all_gather_gemm is tried with warps that push and with narrow bands where rows are many bytes and columns few") {
  const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  const manifest::Op& op = *ops.op("all_gather_gemm");
  const auto tried_of = [&](const char* parameter, const char* rows, const char* n) {
    const std::array settings = {manifest::Setting{"rows", rows}, manifest::Setting{"n", n},
                                 manifest::Setting{"k", "4096"}, manifest::Setting{"world", "4"},
                                 manifest::Setting{"dtype", "bf16"}};
    const Problem bucket = manifest::bucket_of(op, manifest::make_problem(op, settings));
    std::set<std::int64_t> tried;
    for (const Candidate& each : candidates_of({{{op, h100}, bucket}, "sm_90a", false, false}, {}).list) {
      const auto& all = each.implementation->parameters;
      const auto at = std::ranges::find(all, parameter, &manifest::Parameter::name);
      if (at != all.end()) tried.insert(each.config.at(static_cast<std::size_t>(at - all.begin())));
    }
    return tried;
  };
  CHECK(tried_of("pushing", "2048", "1536") == std::set<std::int64_t>{0, 2, 3});
  CHECK(tried_of("pushing", "1024", "1536") == std::set<std::int64_t>{0});
  CHECK(tried_of("pushing", "2048", "14336") == std::set<std::int64_t>{0});
  CHECK(tried_of("group", "2048", "1536") == std::set<std::int64_t>{1, 4, 8});
  CHECK(tried_of("group", "2048", "14336") == std::set<std::int64_t>{4, 8});
}

TEST_CASE("all_reduce by two exchanges has few candidates, where two ranks have very many bytes, or more ranks many") {
  const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  const manifest::Op& op = *ops.op("all_reduce");
  const auto count = [&](const char* rows, const char* world) {
    const std::array settings = {manifest::Setting{"rows", rows}, manifest::Setting{"cols", "8192"},
                                 manifest::Setting{"world", world}, manifest::Setting{"dtype", "bf16"}};
    const Problem bucket = manifest::bucket_of(op, manifest::make_problem(op, settings));
    const Candidates found = candidates_of({{{op, h100}, bucket}, "sm_90a", false, false}, {});
    return std::ranges::count(found.list, "twoshot", [](const Candidate& each) { return each.implementation->name; });
  };
  CHECK(count("8", "4") == 0);  // 128 KiB
  CHECK(count("65536", "1") == 0);
  CHECK(count("512", "2") == 0);  // 8 MiB
  CHECK(count("1024", "2") > 0);
  for (const char* world : {"3", "4", "8"}) {
    for (const char* rows : {"16", "256", "1024", "4096", "65536"}) {
      CAPTURE(world);
      CAPTURE(rows);
      const auto found = count(rows, world);
      CHECK((found >= 4 && found <= 24));
    }
  }
}

TEST_CASE("sums over ranks are tried in packets up to 8 MiB from all ranks, with the norm too, and beside the pair") {
  const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  const auto tried = [&](const char* name, const char* rows, const char* world) {
    const manifest::Op& op = *ops.op(name);
    const std::array settings = {manifest::Setting{"rows", rows}, manifest::Setting{"cols", "8192"},
                                 manifest::Setting{"world", world}, manifest::Setting{"dtype", "bf16"}};
    const Problem bucket = manifest::bucket_of(op, manifest::make_problem(op, settings));
    std::map<std::string, int> found;
    for (const Candidate& each : candidates_of({{{op, h100}, bucket}, "sm_90a", false, false}, {}).list)
      ++found[each.implementation->name];
    return found;
  };
  using Sizes = std::vector<std::pair<const char*, const char*>>;
  for (const char* name : {"all_reduce", "all_reduce_norm"}) {
    CAPTURE(name);
    for (const auto& [rows, world] : Sizes{{"1", "2"}, {"256", "2"}, {"128", "4"}, {"64", "8"}}) {
      auto found = tried(name, rows, world);
      CHECK(found["packets"] > 0);
      CHECK(found["push"] > 0);
      CHECK((found["fused"] > 0) == (std::string_view(name) == "all_reduce_norm"));
    }
    for (const auto& [rows, world] : Sizes{{"512", "2"}, {"256", "4"}, {"128", "8"}}) {
      auto found = tried(name, rows, world);
      CHECK(found["packets"] + found["fused"] == 0);
      CHECK(found["push"] > 0);
      CHECK((found["twoshot"] > 0) == (std::string_view(world) != "2"));
    }
  }
}

TEST_CASE(
    "gemm_all_reduce is tried with two exchanges where all_reduce is, and then with one unless bytes are very many") {
  const manifest::Catalogue ops(std::span<const std::filesystem::path>{});
  const manifest::Op& op = *ops.op("gemm_all_reduce");
  const auto exchanges = [&](const char* rows, const char* world) {
    const std::array settings = {manifest::Setting{"rows", rows}, manifest::Setting{"n", "8192"},
                                 manifest::Setting{"k", "4096"}, manifest::Setting{"world", world},
                                 manifest::Setting{"dtype", "bf16"}};
    const Problem bucket = manifest::bucket_of(op, manifest::make_problem(op, settings));
    const Candidates found = candidates_of({{{op, h100}, bucket}, "sm_90a", false, false}, {});
    std::set<std::pair<std::string, std::int64_t>> tried;
    for (const Candidate& each : found.list) {
      const auto& all = each.implementation->parameters;
      const auto at = std::ranges::find(all, "exchanges", &manifest::Parameter::name);
      if (at != all.end())
        tried.emplace(each.implementation->name, each.config.at(static_cast<std::size_t>(at - all.begin())));
    }
    return tried;
  };
  using Tried = std::set<std::pair<std::string, std::int64_t>>;
  CHECK(exchanges("256", "2") == Tried{{"push_wgmma", 1}, {"push_mma", 1}});
  CHECK(exchanges("1024", "2").contains({"push_wgmma", 2}));
  CHECK(exchanges("8", "4") == Tried{{"push_wgmma", 1}, {"push_mma", 1}});
  CHECK(exchanges("256", "4") == Tried{{"push_wgmma", 1}, {"push_wgmma", 2}, {"push_mma", 1}, {"push_mma", 2}});
  for (const char* world : {"3", "4", "5", "6", "7", "8"}) {
    for (const char* rows : {"16", "64", "1024", "4096", "65536"}) {
      CAPTURE(world);
      CAPTURE(rows);
      CHECK(exchanges(rows, world).contains({"push_wgmma", 2}));
    }
  }
}
