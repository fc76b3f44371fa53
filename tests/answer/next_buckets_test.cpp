// Which buckets are compiled ahead, in which order.
#include "answer/next_buckets.hpp"

#include <doctest/doctest.h>

#include "answer/shelf.hpp"

using namespace kiln;
using namespace kiln::answer;

namespace {

const manifest::Op& gemm_op() {
  static const manifest::Catalogue ops{std::vector<std::filesystem::path>{}};
  return *ops.op("gemm");
}

Problem product(std::int64_t m, std::int64_t n, std::int64_t k, const std::string& layout = "nt") {
  return manifest::make_problem(
      gemm_op(), std::vector<manifest::Setting>{
                     {"m", std::to_string(m)}, {"n", std::to_string(n)}, {"k", std::to_string(k)}, {"layout", layout}});
}

std::vector<std::string> texts(const manifest::Op& op, const std::vector<NextBucket>& next) {
  std::vector<std::string> texts;
  for (const NextBucket& each : next) texts.push_back(manifest::open_sizes(op, each.bucket));
  return texts;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("after a bucket come its neighbours, up and down, the nearest first") {
  const auto next = next_buckets(gemm_op(), product(64, 4096, 4096), {}, {});
  CHECK(texts(gemm_op(), next) == Texts{"m=128", "m=32", "m=256", "m=16", "m=512", "m=8"});
  CHECK(next[0].bucket.axes[1] == 4096);
}

TEST_CASE("a bucket at the end of its axis has neighbours on one side") {
  CHECK(texts(gemm_op(), next_buckets(gemm_op(), product(1, 4096, 4096), {}, {})) == Texts{"m=2", "m=4", "m=8"});
  CHECK(texts(gemm_op(), next_buckets(gemm_op(), product(1048576, 64, 64), {}, {})) ==
        Texts{"m=524288", "m=262144", "m=131072"});
}

TEST_CASE("the other shapes that were launched come first, at the same length") {
  const std::vector<Problem> met{product(64, 1024, 4096), product(512, 4096, 14336)};
  const auto next = next_buckets(gemm_op(), product(64, 4096, 4096), met, {});
  REQUIRE(next.size() > 4);
  CHECK(next[0].bucket == product(64, 4096, 14336));  // the latest first
  CHECK(next[1].bucket == product(64, 1024, 4096));
  CHECK(next[1].rank == 0);
  CHECK(next[2].bucket == product(512, 4096, 4096));  // a length of another shape
  CHECK(next[2].rank == 1);
  CHECK(next[3].bucket == product(128, 4096, 4096));
}

TEST_CASE("shapes and lengths that the files count are as good as those that were launched, the most launched first") {
  const std::vector<BucketCount> counted{{product(2048, 28672, 4096), 900}, {product(16, 4096, 4096), 100}};
  const auto next = next_buckets(gemm_op(), product(64, 4096, 4096), {}, counted);
  REQUIRE(next.size() > 2);
  CHECK(next[0].bucket == product(64, 28672, 4096));
  CHECK(next[1].bucket == product(2048, 4096, 4096));
  CHECK(next[2].bucket == product(128, 4096, 4096));
}

TEST_CASE("sizes that are exact for one layout and lengths for another are not exchanged") {
  const std::vector<Problem> met{product(4096, 1024, 64, "tn")};  // whose length is k
  for (const NextBucket& each : next_buckets(gemm_op(), product(64, 4096, 4096), met, {}))
    CHECK((each.bucket.selections != product(64, 4096, 4096).selections || each.bucket.axes[1] == 4096));
}

TEST_CASE("lengths that are equal, as queries and keys of a prompt, rise and fall together") {
  static const manifest::Catalogue ops{std::vector<std::filesystem::path>{}};
  const manifest::Op& op = *ops.op("attention_forward");
  const Problem missed = manifest::make_problem(op, std::vector<manifest::Setting>{{"batch", "1"},
                                                                                   {"queries", "512"},
                                                                                   {"keys", "512"},
                                                                                   {"heads", "32"},
                                                                                   {"key_heads", "8"},
                                                                                   {"head_dim", "128"},
                                                                                   {"value_dim", "128"}});
  const Texts next = texts(op, next_buckets(op, missed, {}, {}));
  REQUIRE(next.size() == 9);
  CHECK(next[0] == "batch=2 queries=512 keys=512");
  CHECK(next[1] == "batch=1 queries=1024 keys=1024");
  CHECK(next[2] == "batch=1 queries=256 keys=256");
}
