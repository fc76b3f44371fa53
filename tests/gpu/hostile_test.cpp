// Fault 35: candidates that fault, trap or never end, each tried beside good ones.
#include <algorithm>
#include <chrono>

#include "gpu/fixture.hpp"
#include "process/child.hpp"

namespace kiln::gpu_tests {

TEST_CASE("fault 35: a candidate that faults or never ends is rejected alone, and nothing of the caller's is touched") {
  if (process::find_worker({}).empty()) {
    MESSAGE("skipped: kiln-worker was not found; name it in KILN_WORKER");
    return;
  }
  Fixture fixture;
  constexpr std::int64_t rows = 1000;
  const std::vector<float> before(rows, 3.0F);
  const cuda::Buffer x(rows * 4), y(rows * 4), guard(rows * 4);
  for (const cuda::Buffer* buffer : {&x, &guard}) buffer->copy_from_host(before.data(), rows * 4);

  Options options;
  options.overlay = "";
  options.template_paths = test_ops();
  options.isolation = Isolation::worker;
  options.candidate_limit = std::chrono::seconds(5);
  std::vector<std::string> rejected;
  std::int64_t tried = 0;
  options.on_tune = [&](const TuneEvent& event) {
    if (event.kind != TuneEvent::Kind::candidate) return;
    ++tried;
    MESSAGE(std::string(event.config), ": ", std::string(event.verdict), " ", std::string(event.reason));
    if (event.verdict != "ok") rejected.emplace_back(event.config);
  };
  const Engine engine(options);
  const Op op = engine.op("hostile");
  const Problem problem = op.problem({{"rows", rows}});
  const auto as_pointer = [](const cuda::Buffer& buffer) { return reinterpret_cast<const void*>(buffer.pointer()); };
  const Arguments arguments = op.arguments({{"x", as_pointer(x)}, {"y", as_pointer(y)}});
  CHECK(op.launch(problem, arguments, fixture.stream.handle()) == Origin::overlay);
  fixture.stream.synchronize();

  CHECK(tried == 10);
  CHECK(rejected.size() == 8);
  CHECK(std::none_of(rejected.begin(), rejected.end(),
                     [](const std::string& config) { return config.starts_with("harm=0"); }));
  std::vector<float> after(rows), kept(rows);
  y.copy_to_host(after.data(), rows * 4);
  guard.copy_to_host(kept.data(), rows * 4);
  CHECK(std::all_of(after.begin(), after.end(), [](float value) { return value == 6.0F; }));
  CHECK(kept == before);
}

}  // namespace kiln::gpu_tests
