// Gradients of keys that most queries are far from: logits far under 0.
#include "faults/engine/fixture.hpp"
#include "faults/engine/rounded_gradients.hpp"
#include "manifest/catalogue.hpp"

namespace kiln::faults {
namespace {

/// Of dk, in bf16 with heads of `dim`.
manifest::Tolerance tolerance_of_dk(const manifest::Op& op, const char* alibi) {
  const Problem problem = manifest::make_problem(op, std::vector<manifest::Setting>{{"batch", "1"},
                                                                                    {"queries", "256"},
                                                                                    {"keys", "64"},
                                                                                    {"heads", "8"},
                                                                                    {"key_heads", "8"},
                                                                                    {"head_dim", "64"},
                                                                                    {"value_dim", "64"},
                                                                                    {"dtype", "bf16"},
                                                                                    {"alibi", alibi}});
  const auto dk = std::ranges::find(op.tensors, "dk", &manifest::Tensor::name);
  return op.tolerance_of(*dk, manifest::frame_of({op, h200()}, problem));
}

}  // namespace

TEST_CASE(
    "fault 80: what the kernels round is within dk's tolerance, and under the plain computation's error in bf16") {
  const manifest::Catalogue ops({});
  const manifest::Op& op = *ops.op("attention_backward");
  const manifest::Tolerance tolerance = tolerance_of_dk(op, "head");
  std::int64_t cases = 0;
  struct Case {
    GradientShape shape;
    std::uint64_t seed;
  };
  // By steeper slopes than those of a verification, each of these is past the bounds.
  for (const Case& each :
       {Case{{140, 60, 8, 64}, 100227}, Case{{180, 80, 8, 64}, 200259}, Case{{500, 400, 4, 64}, 7}}) {
    CAPTURE(each.seed);
    const GradientErrors errors =
        RoundedGradients(each.shape, each.seed).errors(tolerance.relative, tolerance.absolute);
    CHECK(errors.of_kernels < 1);
    CHECK(errors.of_kernels <= 1.5 * errors.of_plain);
    CHECK(errors.kernels_rms <= 1.5 * errors.plain_rms);
    CHECK(errors.kernels_rms > 1e-4);  // it did round
    ++cases;
  }
  CHECK(tolerance_of_dk(op, "none").absolute == tolerance.absolute);
  tally(80, cases, "gradients of few keys");
}

}  // namespace kiln::faults
