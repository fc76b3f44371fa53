// kiln::Op as programs use it: settings known at run time, descriptions, bindings, and what is another op's.
#include <algorithm>
#include <string>
#include <vector>

#include "engine/scale_engine.hpp"

using namespace kiln;
using namespace kiln::engine::testing;

namespace {

/// An engine by its public face, with the ops of tests/e2e/ops.
struct PublicEngine {
  fake_cuda_tests::Fixture machine;
  Engine engine{options()};
  Op scale = engine.op("scale");

  [[nodiscard]] const void* memory(std::int64_t bytes) {
    return reinterpret_cast<const void*>(machine.allocate(static_cast<std::size_t>(bytes)));
  }
  static Options options() {
    Options chosen;
    chosen.overlay = "";
    chosen.on_miss = MissPolicy::nearest;
    chosen.template_paths = {std::filesystem::path(KILN_SOURCE_DIR) / "tests/e2e/ops"};
    chosen.isolation = Isolation::in_process;
    chosen.compile_workers = 1;
    return chosen;
  }
};

}  // namespace

TEST_CASE("the library's version is that of its headers") { CHECK(version() == KILN_VERSION_STRING); }

TEST_CASE("settings and arguments that are known at run time make what lists make" * doctest::skip(no_plans())) {
  PublicEngine with;
  const std::vector<Op::Setting> settings = {{"rows", 3}, {"cols", 64}, {"dtype", "f32"}};
  CHECK(with.scale.problem(settings) == with.scale.problem({{"rows", 3}, {"cols", 64}, {"dtype", "f32"}}));
  const std::vector<Op::Argument> values = {{"factor", 2.0}};
  CHECK(with.scale.arguments(values).runtime == with.scale.arguments({{"factor", 2.0}}).runtime);
}

TEST_CASE("tensors are bound and launched" * doctest::skip(no_plans())) {
  PublicEngine with;
  const auto *const x = static_cast<const float*>(with.memory(3 * 96 * 4)), *const y = static_cast<const float*>(
                                                                                with.memory(3 * 64 * 4));
  Binding binding = with.scale.binding({}, {{"factor", 2.0}});
  with.scale.bind(binding, {{with.scale.tensor("x"), {x, DType::f32, {3, 64}, {96, 1}, 0}},
                            {with.scale.tensor("y"), {y, DType::f32, {3, 64}, 0}}});
  const std::int64_t before = ScaleEngine::runs("scale_");
  CHECK(with.scale.launch(binding.problem, binding.arguments, with.machine.stream) == Origin::default_);
  CHECK(ScaleEngine::runs("scale_") == before + 1);
  CHECK(binding.arguments.runtime[with.scale.runtime("stride").index] == 96);

  // Of no rows: nothing runs, and no address is looked at.
  with.scale.bind(binding, {{with.scale.tensor("x"), {nullptr, DType::f32, {0, 64}}},
                            {with.scale.tensor("y"), {nullptr, DType::f32, {0, 64}}}});
  CHECK(with.scale.launch(binding.problem, binding.arguments, with.machine.stream) == Origin::hot);
  CHECK(ScaleEngine::runs("scale_") == before + 1);
}

TEST_CASE("a binding that was not bound, or whose tensors were refused, is not launched" * doctest::skip(no_plans())) {
  PublicEngine with;
  Binding binding = with.scale.binding({}, {{"factor", 2.0}});
  const auto refused = [&] {
    const auto wrong = [&](auto launch) {
      const Error error = error_of(launch);
      CHECK(error.kind() == ErrorKind::bad_input);
      CHECK_MESSAGE(std::string(error.what()).find("has no size: Op::bind was not called") != std::string::npos,
                    std::string(error.what()));
    };
    wrong([&] { (void)with.scale.launch(binding.problem, binding.arguments, with.machine.stream); });
    wrong([&] { (void)with.scale.try_launch(binding.problem, binding.arguments, with.machine.stream); });
    wrong([&] { (void)with.scale.plan(binding.problem, with.machine.stream); });
  };
  refused();
  const Tensor x{with.memory(768), DType::f32, {3, 64}, 0}, y{with.memory(768), DType::f32, {3, 64}, 0};
  const TensorId at_x = with.scale.tensor("x"), at_y = with.scale.tensor("y");
  with.scale.bind(binding, {{at_x, x}, {at_y, y}});
  with.scale.launch(binding.problem, binding.arguments, with.machine.stream);
  CHECK(error_of([&] { with.scale.bind(binding, {{at_x, x}}); }).kind() == ErrorKind::bad_input);
  refused();
}

TEST_CASE("a problem or binding that was never made does not pass for an empty batch" * doctest::skip(no_plans())) {
  PublicEngine with;
  const Plan three = with.scale.plan(with.scale.problem({{"rows", 3}, {"cols", 64}}), with.machine.stream);
  const auto refused = [&](const Problem& problem) {
    const auto wrong = [](const std::string& said) {
      CHECK_MESSAGE(said ==
                        "op 'scale': the problem has a size of 0 and was never made; make it by Op::problem, or by "
                        "Op::binding and Op::bind",
                    said);
    };
    const auto throws = [&](auto call) {
      const Error error = error_of(call);
      CHECK(error.kind() == ErrorKind::bad_input);
      wrong(error.what());
    };
    throws([&] { (void)with.scale.launch(problem, {}, with.machine.stream); });
    throws([&] { (void)with.scale.try_launch(problem, {}, with.machine.stream); });
    throws([&] { (void)with.scale.plan(problem, with.machine.stream); });
    throws([&] { (void)three.launch(problem, {}, with.machine.stream); });
    throws([&] { (void)with.scale.describe(problem); });
    throws([&] { (void)with.engine.explain(with.scale, problem); });
    for (const Coverage& found : {with.engine.prepare(with.scale, std::span(&problem, 1), with.machine.stream),
                                  with.engine.coverage(with.scale, std::span(&problem, 1), with.machine.stream)}) {
      CHECK(found.hits == 0);
      CHECK_FALSE(found.capturable());
      REQUIRE(found.gaps.size() == 1);
      wrong(found.gaps[0].why);
    }
  };
  refused(Problem{});
  refused(Binding{}.problem);
  Problem by_hand;
  by_hand.axes[with.scale.axis("cols").index] = 64;
  refused(by_hand);

  // A batch is empty only by a size that was said, or by tensors.
  const Problem none = with.scale.problem({{"rows", 0}, {"cols", 64}});
  CHECK(with.scale.launch(none, {}, with.machine.stream) == Origin::hot);
  CHECK(with.engine.prepare(with.scale, std::span(&none, 1), with.machine.stream).hits == 1);
  Binding binding;
  with.scale.bind(binding, {{with.scale.tensor("x"), {nullptr, DType::f32, {0, 64}}},
                            {with.scale.tensor("y"), {nullptr, DType::f32, {0, 64}}}});
  CHECK(with.scale.launch(binding.problem, binding.arguments, with.machine.stream) == Origin::hot);
}

TEST_CASE("an argument that the op has not is told all that it has, and what it is like" * doctest::skip(no_plans())) {
  PublicEngine with;
  CHECK(std::string(error_of([&] {
                      (void)with.scale.arguments({{"facter", 2.0}});
                    }).what()) ==
        "scale has no tensor, run-time value or axis 'facter' (did you mean 'factor'?); it has: x, bias, y, factor, "
        "stride, rows");
  CHECK(std::string(error_of([&] { (void)with.scale.axis("row"); }).what()) ==
        "scale has no axis 'row' (did you mean 'rows'?); it has: rows, cols");
}

TEST_CASE("an argument that is given twice, and a size that no problem has, are refused" * doctest::skip(no_plans())) {
  PublicEngine with;
  const auto said = [](auto call) {
    const Error error = error_of(call);
    CHECK(error.kind() == ErrorKind::bad_input);
    return std::string(error.what());
  };
  CHECK(said([&] {
          (void)with.scale.arguments({{"factor", 2.0}, {"factor", 3.0}});
        }) == "scale: 'factor' is given twice, expected it once");
  CHECK(said([&] {
          (void)with.scale.binding({}, {{"stride", 64}, {"factor", 2.0}, {"stride", 64}});
        }) == "scale: 'stride' is given twice, expected it once");
  CHECK(said([&] { (void)with.scale.binding({{"rows", -5}}); }) == "op 'scale': axis 'rows' is -5, expected 0 or more");
}

TEST_CASE("an engine's op describes itself, at a problem for the engine's device" * doctest::skip(no_plans())) {
  PublicEngine with;
  CHECK(with.scale.describe().contract ==
        "A small op whose answers are easy to foresee: two implementations, seven candidates, compiled in a moment.\n");
  const OpDescription at = with.scale.describe(with.scale.problem({{"rows", 3}, {"cols", 64}}));
  CHECK(at.tensors.at(0).sizes == std::vector<std::int64_t>{3, 64});
  CHECK(at.axes.at(0).id.op == with.scale.axis("rows").op);
}

TEST_CASE("a problem of another op is refused, hot only in builds with assertions" * doctest::skip(no_plans())) {
  PublicEngine with;
  const Op other = with.engine.op("early_scale");
  const Problem theirs = other.problem({{"rows", 3}, {"cols", 64}});
  Problem own = with.scale.problem({{"rows", 3}, {"cols", 64}});
  REQUIRE(own == theirs);  // so that nothing but the op tells them apart
  const auto refused = [&](auto work) {
    const Error error = error_of(work);
    CHECK(error.kind() == ErrorKind::bad_input);
    CHECK_MESSAGE(std::string(error.what()).find("the problem is another op's") != std::string::npos,
                  std::string(error.what()));
  };
  refused([&] { (void)with.scale.launch(theirs, with.scale.arguments({{"factor", 2.0}}), with.machine.stream); });
  refused([&] { (void)with.scale.plan(theirs); });
  refused([&] { (void)with.scale.describe(theirs); });
  refused([&] { (void)with.engine.explain(with.scale, theirs); });
  Arguments arguments = other.arguments({{"factor", 2.0}});
  const Error error = error_of([&] { (void)with.scale.launch(own, arguments, with.machine.stream); });
  CHECK_MESSAGE(std::string(error.what()).find("the arguments are another op's") != std::string::npos,
                std::string(error.what()));
  own.op = 0;  // made by hand
  CHECK_NOTHROW((void)with.engine.explain(with.scale, own));
}
