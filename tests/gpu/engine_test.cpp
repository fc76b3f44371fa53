// The whole path on a device: tune, replay, restart.
#include <fmt/format.h>

#include <thread>

#include "gpu/fixture.hpp"

namespace kiln::gpu_tests {
namespace {

std::filesystem::path temporary_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "kiln-gpu-XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  return name;
}

}  // namespace

TEST_CASE("one tune serves every length of its bucket, in this engine and in the next") {
  Fixture fixture;
  const auto folder = temporary_folder();
  const manifest::Op& described = fixture.op("rms_norm");
  const Problem first = fixture.problem(described, {{"rows", "33"}, {"cols", "512"}, {"dtype", "bf16"}});
  tune::VerificationCase verified({described, fixture.facts()}, first, fixture.arch(), fixture.cubins, 1,
                                  fixture.stream.handle());
  const auto serve_all = [&](const Engine& engine) {
    const Op op = engine.op("rms_norm");
    Problem problem = first;
    for (std::int64_t rows = 33; rows <= 64; ++rows) {
      problem[op.axis("rows")] = rows;
      verified.retarget(problem, static_cast<std::uint64_t>(rows), fixture.stream.handle());
      verified.poison(fixture.stream.handle());
      op.launch(problem, verified.arguments(), fixture.stream.handle());
      const tune::Check check = verified.check(fixture.stream.handle());
      CHECK_MESSAGE(check.right, check.reason);
    }
  };
  {
    const Engine engine(options(MissPolicy::tune, folder / "overlay.kiln"));
    serve_all(engine);
    CHECK(engine.stats().tunes == 1);
    CHECK(engine.stats().overlay + engine.stats().hot ==
          32);  // a bucket may have several configs, each with a first launch
  }
  const Engine again(options(MissPolicy::error, folder / "overlay.kiln"));
  serve_all(again);
  CHECK(again.stats().tunes == 0);
  CHECK(again.stats().compiles == 0);
  CHECK(again.stats().overlay >= 1);
  CHECK(again.stats().overlay + again.stats().hot == 32);
  std::filesystem::remove_all(folder);
}

TEST_CASE("eight threads on one engine, each on its own stream, get right answers from one plan") {
  Fixture fixture;
  const Engine engine(options(MissPolicy::nearest, ""));
  const Op op = engine.op("softmax");
  const manifest::Op& described = fixture.op("softmax");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const cuda::Context::Scope scope(fixture.context);
      const cuda::Stream stream;
      const Problem problem =
          fixture.problem(described, {{"rows", fmt::to_string(17 + t)}, {"cols", "3000"}, {"dtype", "f16"}});
      tune::VerificationCase verified({described, fixture.facts()}, problem, fixture.arch(), fixture.cubins,
                                      static_cast<std::uint64_t>(t), stream.handle());
      for (int i = 0; i < 20; ++i) {
        verified.poison(stream.handle());
        op.launch(problem, verified.arguments(), stream.handle());
        wrong += verified.check(stream.handle()).right ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE("a thread without a current context launches all the same") {
  Fixture fixture;
  const Engine engine(options(MissPolicy::nearest, ""));
  const Op op = engine.op("rms_norm");
  const manifest::Op& described = fixture.op("rms_norm");
  const Problem problem = fixture.problem(described, {{"rows", "4"}, {"cols", "128"}, {"dtype", "f32"}});
  tune::VerificationCase verified({described, fixture.facts()}, problem, fixture.arch(), fixture.cubins, 5,
                                  fixture.stream.handle());
  op.plan(problem);
  verified.poison(fixture.stream.handle());
  std::thread([&] { op.launch(problem, verified.arguments(), fixture.stream.handle()); }).join();
  const tune::Check check = verified.check(fixture.stream.handle());
  CHECK_MESSAGE(check.right, check.reason);
}

}  // namespace kiln::gpu_tests
