// What a manifest says is what the op holds.
#include <doctest/doctest.h>

#include "kiln/error.hpp"
#include "manifest/op.hpp"
#include "manifest/problem.hpp"
#include "manifest/site.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

TEST_CASE("an op holds its axes, names, tensors and cost in the manifest's order") {
  const Op op = testing::scale_folder().parse();
  CHECK(op.summary == "y = x * factor");
  CHECK(op.revision == 3);
  REQUIRE(op.axes.size() == 2);
  CHECK(op.axes[0].name == "rows");
  CHECK(op.axes[0].policies.front().policy.kind == PolicyKind::pow2);
  CHECK(op.axes[1].multiple_of == 8);
  REQUIRE(op.selections.size() == 2);
  CHECK(op.selections[0].dtypes == std::vector<DType>{DType::bf16, DType::f32});
  CHECK(!op.selections[1].is_type());
  REQUIRE(op.runtime.size() == 2);
  CHECK(!op.runtime[0].is_integer());
  CHECK(op.runtime[1].minimum->text() == "cols");
  REQUIRE(op.tensors.size() == 2);
  CHECK(op.tensors[0].strides[0].text() == "stride");
  CHECK(op.tensors[1].strides[0].text() == "(cols)");
  CHECK(op.tensors[1].output);
  CHECK(op.tolerance.at(DType::f32).front().relative == 1e-5);
  CHECK(op.reference_source == "reference.cuh");
  CHECK(op.cost_flops.text() == "rows * cols");
  CHECK(op.files.size() == 2);
  CHECK(op.symbols.size() == 13);
  CHECK(op.first_parameter() == 13);
}

TEST_CASE("an implementation holds its parameters, geometry and arguments") {
  const Op op = testing::scale_folder().parse();
  REQUIRE(op.find("fast") != nullptr);
  CHECK(op.find("slow") == nullptr);
  const Implementation& fast = *op.find("fast");
  CHECK(fast.file == "/ops/scale/fast.toml");
  CHECK(fast.source == "fast.cuh");
  CHECK(fast.options == std::vector<std::string>{"--use_fast_math", "--maxrregcount=64"});
  CHECK(fast.requires_text == "sm >= 80");
  CHECK(fast.parameters[0].name == "threads");
  CHECK(fast.default_config == Config{256, 4});
  CHECK(fast.alignment.at(0).first == 0);
  CHECK(fast.workspaces.at(0).zeroed);
  const Pass& pass = fast.passes.at(0);
  CHECK(pass.line.number == 16);
  CHECK(pass.cluster[0].constant_value() == 2);
  CHECK(pass.grid[2].constant_value() == 1);
  std::vector<ArgumentKind> kinds;
  for (const Argument& each : pass.arguments) kinds.push_back(each.kind);
  CHECK(kinds == std::vector<ArgumentKind>{ArgumentKind::tensor, ArgumentKind::tensor, ArgumentKind::zeroed_workspace,
                                           ArgumentKind::axis, ArgumentKind::runtime, ArgumentKind::expression,
                                           ArgumentKind::tensor_map});
  CHECK(pass.arguments[5].type == RuntimeType::i32);
  CHECK(pass.arguments[6].swizzle.constant_value() == 128);
  REQUIRE(pass.arguments[6].shape.size() == 2);  // the tensor's own
  CHECK(pass.arguments[6].shape[1].text() == "cols");
  CHECK(pass.arguments[6].strides[0].text() == "stride");
}

TEST_CASE("a TMA argument may show another shape than its tensor's, with strides of its own or the tensor's") {
  testing::Folder folder = testing::scale_folder();
  const std::string whole = R"({ tma = "x", box = [16, "64"], swizzle = 128 })";
  folder.implementation = testing::replaced(
      folder.implementation, whole,
      R"({ tma = "x", shape = ["rows", "cols / vector", "vector"], strides = ["stride", "vector", 1], box = [16, 1, "vector"] }, { tma = "x", shape = ["rows / 2", "cols"], box = [16, 8], unbounded = true })");
  const Op op = folder.parse();
  const std::vector<Argument>& arguments = op.implementations[0].passes[0].arguments;
  const auto texts = [](const std::vector<Expression>& expressions) {
    std::vector<std::string> result;
    for (const Expression& each : expressions) result.push_back(each.text());
    return result;
  };
  CHECK(texts(arguments[6].shape) == std::vector<std::string>{"rows", "cols / vector", "vector"});
  CHECK(texts(arguments[6].strides) == std::vector<std::string>{"stride", "vector", "1"});
  CHECK_FALSE(arguments[6].unbounded);
  CHECK(texts(arguments[7].shape) == std::vector<std::string>{"rows / 2", "cols"});
  CHECK(texts(arguments[7].strides) == std::vector<std::string>{"stride", "1"});
  CHECK(arguments[7].unbounded);
}

TEST_CASE("a pass may start early always, never, or as an expression over static names says") {
  testing::Folder folder = testing::scale_folder();
  const auto programmatic = [&](const std::string& value) {
    testing::Folder with = folder;
    with.implementation += "programmatic = " + value + "\n";
    const Op op = with.parse();
    return op.implementations[0].passes[0].programmatic;
  };
  CHECK(folder.parse().implementations[0].passes[0].programmatic.constant_value() == 0);
  CHECK(programmatic("false").constant_value() == 0);
  CHECK(programmatic("true").constant_value() == 1);
  CHECK(programmatic("\"threads > 128 && cols > 64\"").text() == "threads > 128 && cols > 64");
}

TEST_CASE("a parameter of `programmatic` and constraints alone changes the launch, any other the kernel") {
  testing::Folder folder = testing::scale_folder();
  folder.implementation =
      testing::replaced(folder.implementation, "vector  = [2, 4, 8]", "vector  = [2, 4, 8]\npdl = [0, 1]");
  folder.implementation = testing::replaced(folder.implementation, "vector  = 4\n", "vector  = 4\npdl = 0\n");
  folder.implementation =
      testing::replaced(folder.implementation, "\"threads <= 1024\"", "\"threads <= 1024\", \"pdl == 0 || sm >= 90\"");
  const auto launch_only = [](const testing::Folder& of) {
    std::vector<bool> which;
    const Op op = of.parse();
    for (const Parameter& each : op.implementations[0].parameters) which.push_back(each.launch_only);
    return which;
  };
  const std::vector<bool> none = {false, false, false}, last = {false, false, true};
  CHECK(launch_only(folder) == none);
  folder.implementation += "programmatic = \"pdl && threads > 128\"\n";
  CHECK(launch_only(folder) == last);
  const std::pair<const char*, const char*> uses[] = {
      {"{vector * 2}", "{vector * 2 + pdl}"},
      {"\"ceil_div(rows, 4)\", \"2\"", "\"ceil_div(rows, 4)\", \"2 + pdl\""},
      {"block   = [\"threads\"]", "block   = [\"threads\", \"1 + pdl\"]"},
      {"cluster = [2]", "cluster = [\"2 + pdl\"]"},
      {"shared  = \"threads * 4\"", "shared  = \"threads * 4 + pdl\""},
      {"mode == \"plain\"", "mode == \"plain\" && pdl"},
      {"\"ceil_div(rows, 2)\"", "\"ceil_div(rows, 2) + pdl\""},
      {"[16, \"64\"]", "[16, \"64 - pdl\"]"},
      {"swizzle = 128", "swizzle = 128, when = \"pdl\""},
      {"\"rows * 4\"", "\"rows * (4 + pdl)\""},
      {"x = \"vector * sizeof(dtype)\"", "x = \"vector * sizeof(dtype) + pdl\""}};
  for (const auto& use : uses) {
    testing::Folder with = folder;
    with.implementation = testing::replaced(with.implementation, use.first, use.second);
    CAPTURE(use.second);
    CHECK(launch_only(with) == none);
  }
  folder.implementation += "[pass.model]\noperations = \"rows * (1 + pdl)\"\n";
  CHECK(launch_only(folder) == none);
}

TEST_CASE("a tensor with a condition takes part under the types and choices that meet it") {
  testing::Folder folder = testing::scale_folder();
  folder.op = testing::replaced(
      folder.op, "[tolerance]",
      "limit = { shape = [\"1\"], dtype = \"f32\", when = 'mode == \"saturate\" && dtype == \"bf16\"' }\n[tolerance]");
  const Op op = folder.parse();
  const auto takes_part = [&](std::size_t tensor, const char* mode, const char* dtype) {
    const std::vector<Setting> settings = {{"rows", "1"}, {"cols", "8"}, {"mode", mode}, {"dtype", dtype}};
    const auto frame = frame_of({op, testing::h200()}, make_problem(op, settings));
    return Op::takes_part(op.tensors[tensor], frame);
  };
  CHECK(takes_part(2, "saturate", "bf16"));
  CHECK_FALSE(takes_part(2, "plain", "bf16"));
  CHECK_FALSE(takes_part(2, "saturate", "f32"));
  CHECK(takes_part(1, "plain", "f32"));
}

TEST_CASE("what a pass really does is read from the table that follows it") {
  testing::Folder folder = testing::scale_folder();
  CHECK_FALSE(folder.parse().implementations[0].passes[0].model.has_value());
  folder.implementation += "[pass.model]\noperations = \"rows * threads\"\nunit = \"mma\"\nregisters = 40\n";
  const Op op = folder.parse();
  const auto& model = op.implementations[0].passes[0].model;
  REQUIRE(model.has_value());
  CHECK(model->unit == Unit::mma);
  CHECK(model->operations->text() == "rows * threads");
  CHECK(model->registers->constant_value() == 40);
  CHECK_FALSE(model->read_bytes.has_value());
}

TEST_CASE("policies with a table keep their edges") {
  testing::Folder folder = testing::scale_folder();
  folder.op = testing::replaced(
      folder.op, "rows = { bucket = \"pow2\"",
      "rows = { bucket = { policy = \"pow2_steps\", pow2_until = 256, steps = [{ until = 2048, step = 256 }] }");
  CHECK(policy_text(folder.parse().axes[0]) == "pow2_steps(256;2048/256)");
  folder = testing::scale_folder();
  folder.op = testing::replaced(folder.op, "bucket = \"exact\"", "bucket = { policy = \"edges\", edges = [16, 64] }");
  folder.implementation = testing::replaced(folder.implementation, "cols % vector == 0", "rows > 0");
  CHECK(policy_text(folder.parse().axes[1]) == "edges(16;64)");
}

TEST_CASE("without a list the implementations stand by name, and a list goes first") {
  testing::Folder folder = testing::scale_folder();
  std::vector<SourceFile> files = folder.files();
  files.push_back(
      {"almost.toml", testing::replaced(folder.implementation, "requires = ", "source = \"fast.cuh\"\nrequires = ")});
  const auto names = [](const Op& op) { return std::vector{op.implementations[0].name, op.implementations[1].name}; };
  CHECK(names(parse_op("scale", "built-in", files)) == std::vector<std::string>{"almost", "fast"});
  files[0].text = testing::replaced(files[0].text.str(), "revision = 3", "revision = 3\nimplementations = [\"fast\"]");
  CHECK(names(parse_op("scale", "built-in", files)) == std::vector<std::string>{"fast", "almost"});
  CHECK(parse_op("scale", "built-in", files).implementations[0].file == "templates/scale/fast.toml");
}

TEST_CASE("an output's own tolerance counts in place of its type's, under the choices that its list names") {
  testing::Folder folder = testing::scale_folder();
  folder.op = testing::replaced(folder.op, "y = { shape",
                                "sums = { shape = [\"rows\"], dtype = \"f32\", output = true }\ny = { shape");
  folder.op = testing::replaced(
      folder.op, "[tolerance]\n",
      "[tolerance]\nsums = [{ when = 'mode == \"plain\"', relative = 0.25, absolute = 0 }, { relative = 0.5, absolute = 0 }]\n");
  const Op op = folder.parse();
  const auto relative_of = [&](std::size_t tensor, const char* mode) {
    const std::array<Setting, 4> settings = {{{"rows", "4"}, {"cols", "8"}, {"dtype", "f32"}, {"mode", mode}}};
    const auto frame = frame_of({op, testing::h200()}, make_problem(op, settings));
    return op.tolerance_of(op.tensors[tensor], frame).relative;
  };
  CHECK(relative_of(1, "plain") == 0.25);
  CHECK(relative_of(1, "saturate") == 0.5);
  CHECK(relative_of(2, "plain") == 1e-5);

  // A type of which every output has its own needs none.
  folder = testing::scale_folder();
  folder.op = testing::replaced(
      folder.op, "bf16 = { relative = 8e-3, absolute = 1e-3 }\nf32  = { relative = 1e-5, absolute = 1e-6 }",
      "y = { relative = 0.125, absolute = 0 }");
  CHECK(folder.parse().tolerance.empty());
  folder.op = testing::replaced(folder.op, "y = { relative", "x = { relative");
  CHECK(testing::refusal_of(folder).find(
            "found 'x' in [tolerance], expected an element type such as 'f32', or an output") != std::string::npos);
}

TEST_CASE("a workspace is zeroed or not, and an older manifest may call it shared") {
  testing::Folder folder = testing::scale_folder();
  const auto kind = [&] { return folder.parse().implementations[0].passes[0].arguments[2].kind; };
  CHECK(kind() == ArgumentKind::zeroed_workspace);
  folder.implementation = testing::replaced(folder.implementation, "zeroed = true", "shared = true");
  CHECK_FALSE(folder.parse().implementations[0].workspaces[0].zeroed);
  CHECK(kind() == ArgumentKind::workspace);
}

TEST_CASE("a reference computes a sample always, never, or as an expression over sizes says") {
  testing::Folder folder = testing::scale_folder();
  CHECK_FALSE(folder.parse().reference_sample.has_value());
  const std::string whole = folder.op;
  folder.op = testing::replaced(whole, "[reference]\n", "[reference]\nsample = true\n");
  CHECK(folder.parse().reference_sample->constant_value() == 1);
  folder.op = testing::replaced(whole, "[reference]\n", "[reference]\nsample = \"rows * cols > 4096\"\n");
  CHECK(folder.parse().reference_sample->uses(0));
  folder.op = testing::replaced(folder.op, "output = true }", "output = true, initialised = 'mode == \"plain\"' }");
  CHECK(testing::refusal_of(folder).find("found 'sample' beside the output 'y' that is initialised") !=
        std::string::npos);
}

TEST_CASE("without tolerances each type of an output has the usual one") {
  testing::Folder folder = testing::scale_folder();
  const std::size_t begin = folder.op.find("[tolerance]");
  folder.op.erase(begin, folder.op.find("[reference]") - begin);
  CHECK(folder.parse().tolerance.at(DType::bf16).front().relative == 8e-3);
}
