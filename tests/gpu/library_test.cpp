// cuBLASLt's algorithms: made again from their configs, right in every layout, captured at their first launch.
#include <fmt/format.h>

#include "cuda/cublaslt_api.hpp"
#include "gpu/fixture.hpp"
#include "gpu/graph.hpp"
#include "jit/library_algorithm.hpp"

namespace kiln::gpu_tests {
namespace {

constexpr std::size_t proposed = 16;

bool is_here() {
  if (cuda::CublasLt::find() != nullptr) return true;
  MESSAGE("cuBLASLt is not here");
  return false;
}

Problem gemm(const Fixture& fixture, const char* m, const char* dtype, const char* layout, const char* activation) {
  return fixture.problem(
      fixture.op("gemm"),
      {{"m", m}, {"n", "520"}, {"k", "264"}, {"dtype", dtype}, {"layout", layout}, {"activation", activation}});
}

}  // namespace

TEST_CASE("what cuBLASLt proposes is made again from its config, and is right at both ends of a bucket") {
  Fixture fixture;
  if (!is_here()) return;
  const manifest::Op& op = fixture.op("gemm");
  const manifest::Implementation& library = *op.find("cublaslt");
  for (const char* dtype : {"bf16", "f16", "f32"})
    for (const char* layout : {"nt", "nn", "tn", "tt"})
      for (const char* activation : {"none", "relu"})
        for (const char* m : {"16", "256", "2048"}) {
          const Problem bucket = gemm(fixture, m, dtype, layout, activation);
          const auto frame = manifest::Variant{&library}.frame({op, fixture.facts()}, bucket);
          const jit::LibraryProduct product(op, library, frame);
          const auto algorithms = jit::propose(product, op, library, frame, proposed);
          const std::string what = manifest::to_string(op, bucket);
          CHECK_MESSAGE(!algorithms.empty(), what);
          for (const CublasLtMatmulAlgo& each : algorithms) {
            const auto again = jit::algorithm_of(product, jit::config_of(product.library(), each));
            CHECK_MESSAGE((again && again->data == each.data), what);
          }
          const auto configs = jit::library_candidates(op, library, frame, proposed);
          CHECK_MESSAGE(!configs.empty(), what);
          for (const Problem& at : {bucket, manifest::low_corner(op, bucket)}) {
            tune::VerificationCase verified({op, fixture.facts()}, at, fixture.arch(), fixture.cubins, 5,
                                            fixture.stream.handle());
            for (const manifest::Config& config : configs) {
              const jit::Executable executable = fixture.load(op, library, bucket, config);
              const tune::Check check = verified.verify(executable, fixture.stream.handle());
              CHECK_MESSAGE(check.right, fmt::format("{} {} at {}: {}", what, manifest::to_string(library, config),
                                                     manifest::to_string(op, at), check.reason));
            }
          }
        }
}

TEST_CASE(
    "what cuBLASLt proposes for a batch is right at both ends of a bucket, packed, apart and with one w for all") {
  Fixture fixture;
  if (!is_here()) return;
  const manifest::Op& op = fixture.op("gemm_batched");
  const manifest::Implementation& library = *op.find("cublaslt");
  const auto apart = [&](std::int64_t w, std::int64_t others, std::int64_t bias) {
    tune::Placement placement;
    for (std::size_t i = 0; i < op.runtime.size(); ++i) {
      const RuntimeId id{static_cast<std::uint8_t>(i), RuntimeId::Kind::integer};
      const std::string& name = op.runtime[i].name;
      if (name == "x_batch_stride" || name == "y_batch_stride") placement.runtime.emplace_back(id, others);
      if (name == "w_batch_stride") placement.runtime.emplace_back(id, w);
      if (name == "bias_batch_stride") placement.runtime.emplace_back(id, bias);
    }
    return placement;
  };
  const std::int64_t most = std::int64_t{512} * 520 + 64;
  const std::array placements = {tune::Placement(), apart(most, most, 528), apart(0, most, 0)};
  for (const char* dtype : {"bf16", "f16", "f32"})
    for (const char* layout : {"nt", "nn", "tn", "tt"})
      for (const char* activation : {"none", "relu"})
        for (const auto& [batch, m] : {std::array{"1", "64"}, std::array{"16", "256"}, std::array{"64", "16"}}) {
          const Problem bucket = fixture.problem(op, {{"batch", batch},
                                                      {"m", m},
                                                      {"n", "520"},
                                                      {"k", "264"},
                                                      {"dtype", dtype},
                                                      {"layout", layout},
                                                      {"activation", activation}});
          const auto frame = manifest::Variant{&library}.frame({op, fixture.facts()}, bucket);
          const auto configs = jit::library_candidates(op, library, frame, 4);
          const std::string what = manifest::to_string(op, bucket);
          CHECK_MESSAGE(!configs.empty(), what);
          for (const Problem& at : {bucket, manifest::low_corner(op, bucket)}) {
            tune::VerificationCase verified({op, fixture.facts()}, at, fixture.arch(), fixture.cubins, 5,
                                            fixture.stream.handle());
            for (const tune::Placement& placement : placements) {
              verified.retarget(at, 6, fixture.stream.handle(), placement);
              for (const manifest::Config& config : configs) {
                const jit::Executable executable = fixture.load(op, library, bucket, config);
                if (!verified.admits(executable)) continue;
                const tune::Check check = verified.verify(executable, fixture.stream.handle());
                CHECK_MESSAGE(check.right, fmt::format("{} {} at {}: {}", what, manifest::to_string(library, config),
                                                       manifest::to_string(op, at), check.reason));
              }
            }
          }
        }
}

TEST_CASE("a capture holds the first launch of an algorithm of cuBLASLt's, in every mode") {
  Fixture fixture;
  if (!is_here()) return;
  const manifest::Op& op = fixture.op("gemm");
  const manifest::Implementation& library = *op.find("cublaslt");
  const Problem bucket = gemm(fixture, "512", "bf16", "nt", "relu");
  const auto frame = manifest::Variant{&library}.frame({op, fixture.facts()}, bucket);
  tune::VerificationCase verified({op, fixture.facts()}, bucket, fixture.arch(), fixture.cubins, 9,
                                  fixture.stream.handle());
  const CUstream stream = fixture.stream.handle();
  for (const manifest::Config& config : jit::library_candidates(op, library, frame, proposed))
    for (const CUstreamCaptureMode mode : capture_modes) {
      const auto of_config = manifest::Variant{&library, config}.frame({op, fixture.facts()}, bucket);
      const jit::Executable executable(op, library, of_config, nullptr, nullptr, jit::LibraryLoad::at_first_launch);
      tune::TrialWorkspace workspace(executable);
      workspace.renew(stream);
      const Graph graph(stream, mode, [&] { verified.launch(executable, workspace, stream); });
      verified.poison(stream);
      graph.replay();
      const tune::Check check = verified.check(stream);
      CHECK_MESSAGE(check.right, fmt::format("{}: {}", manifest::to_string(library, config), check.reason));
    }
}

TEST_CASE("the algorithm of a tuned bucket gives the same bits each time") {
  Fixture fixture;
  if (!is_here()) return;
  const manifest::Op& op = fixture.op("gemm");
  const manifest::Implementation& library = *op.find("cublaslt");
  const Problem bucket = gemm(fixture, "64", "bf16", "nt", "none");
  const auto frame = manifest::Variant{&library}.frame({op, fixture.facts()}, bucket);
  tune::VerificationCase verified({op, fixture.facts()}, bucket, fixture.arch(), fixture.cubins, 9,
                                  fixture.stream.handle());
  const std::size_t y = 3;
  REQUIRE(op.tensors[y].output);
  const auto result = [&](const jit::Executable& executable, tune::TrialWorkspace& workspace) {
    verified.poison(fixture.stream.handle());
    verified.launch(executable, workspace, fixture.stream.handle());
    std::vector<std::uint16_t> bits(64 * 520);
    cuda::check(cuda::Driver::get().cuMemcpyDtoHAsync_v2(bits.data(),
                                                         reinterpret_cast<CUdeviceptr>(verified.arguments().tensors[y]),
                                                         bits.size() * 2, fixture.stream.handle()),
                "cuMemcpyDtoHAsync");
    fixture.stream.synchronize();
    return bits;
  };
  for (const manifest::Config& config : jit::library_candidates(op, library, frame, proposed)) {
    const jit::Executable executable = fixture.load(op, library, bucket, config);
    tune::TrialWorkspace workspace(executable);
    workspace.renew(fixture.stream.handle());
    const auto first = result(executable, workspace);
    for (int i = 0; i < 5; ++i)
      CHECK_MESSAGE(result(executable, workspace) == first, manifest::to_string(library, config));
  }
}

}  // namespace kiln::gpu_tests
