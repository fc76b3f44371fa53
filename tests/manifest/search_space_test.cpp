#include <doctest/doctest.h>

#include "kiln/error.hpp"
#include "manifest/kernel_name.hpp"
#include "manifest/variant.hpp"
#include "manifest_fixture.hpp"

using namespace kiln;
using namespace kiln::manifest;

namespace {

Problem problem_of_cols(std::int64_t cols, std::uint8_t dtype, std::uint8_t mode = 0) {
  Problem result;
  result.axes = {64, cols};
  result.selections = {dtype, mode};
  return result;
}

}  // namespace

TEST_CASE("a search tries each kernel once, however many ways there are to launch it") {
  testing::Folder folder = testing::scale_folder();
  folder.implementation = testing::replaced(folder.implementation, "[parameters]", "[parameters]\npdl = [0, 1]");
  folder.implementation = testing::replaced(folder.implementation, "[default]", "[default]\npdl = 1");
  folder.implementation = testing::replaced(folder.implementation, "\"threads <= 1024\"",
                                            "\"threads <= 1024\", \"pdl == 0 || vector < 8\"");
  folder.implementation += "programmatic = \"pdl\"\n";
  const Op op = folder.parse();
  const Implementation& fast = *op.find("fast");
  const Problem bf16 = problem_of_cols(64, 0);
  const std::vector<Config> kernels = {{1, 128, 2}, {1, 128, 4}, {0, 128, 8}, {1, 256, 2}, {1, 256, 4}, {0, 256, 8}};
  CHECK(search_space({op, testing::h200()}, fast, bf16).size() == 10);
  const std::vector<Config> searched = searched_space({op, testing::h200()}, fast, bf16);
  CHECK(std::is_permutation(searched.begin(), searched.end(), kernels.begin(), kernels.end()));
  CHECK(launches_of({op, testing::h200()}, Variant{&fast, {1, 128, 2}}, bf16) ==
        std::vector<Config>{{1, 128, 2}, {0, 128, 2}});
  CHECK(launches_of({op, testing::h200()}, Variant{&fast, {0, 128, 8}}, bf16) == std::vector<Config>{{0, 128, 8}});
  CHECK(kernel_config(fast, {0, 128, 8}) == Config{1, 128, 8});
}

TEST_CASE("the search space holds the legal configs in the manifest's order, the last parameter fastest") {
  const Op op = testing::scale_folder().parse();
  const Implementation& fast = op.implementations[0];
  CHECK(search_space({op, testing::h200()}, fast, problem_of_cols(64, 0)) ==
        std::vector<Config>{{128, 2}, {128, 4}, {128, 8}, {256, 2}, {256, 4}, {256, 8}});
  CHECK(search_space({op, testing::h200()}, fast, problem_of_cols(64, 1)) ==
        std::vector<Config>{{128, 2}, {128, 4}, {256, 2}, {256, 4}});
}

TEST_CASE("it is the walk through a space that is bounded, not how many configs there are before constraints") {
  testing::Folder folder = testing::scale_folder();
  std::string parameters = "[parameters]", chosen = "[default]", all_legal = "\"threads <= 1024\"", few = all_legal;
  for (char name = 'a'; name < 'm'; ++name) {
    parameters += std::string("\n") + name + " = [1, 2, 3, 4, 5, 6, 7, 8]";
    chosen += std::string("\n") + name + " = 1";
    all_legal += std::string(", \"") + name + " <= 8\"";
    few += std::string(", \"") + name + " <= 2\"";
  }
  folder.implementation = testing::replaced(folder.implementation, "[parameters]", parameters);
  folder.implementation = testing::replaced(folder.implementation, "[default]", chosen);
  testing::Folder unpruned = folder;
  unpruned.implementation = testing::replaced(folder.implementation, "\"threads <= 1024\"", all_legal);
  const Op all = unpruned.parse();
  const Problem problem = problem_of_cols(64, 0);
  const Implementation& unbounded = *all.find("fast");
  CHECK_FALSE(why_not_eligible({all, testing::h200()}, unbounded, problem).has_value());
  CHECK_THROWS_WITH_AS(search_space({all, testing::h200()}, unbounded, problem),
                       doctest::Contains("fast of op scale: its parameters take more than 1000000 steps"), Error);
  CHECK_FALSE(count_legal({all, testing::h200()}, unbounded, problem).has_value());

  folder.implementation = testing::replaced(folder.implementation, "\"threads <= 1024\"", few);
  const Op some = folder.parse();  // as many before constraints
  CHECK(search_space({some, testing::h200()}, *some.find("fast"), problem).size() == 4096 * 6);
}

TEST_CASE("what [search] leaves out is not tried, and is legal all the same") {
  testing::Folder folder = testing::scale_folder();
  folder.implementation = testing::replaced(folder.implementation, "[align]",
                                            "[search]\nall = [\"vector >= 4\", \"rows < 4096\"]\n[align]");
  const Op op = folder.parse();
  const Implementation& fast = op.implementations[0];
  Problem problem = problem_of_cols(64, 0);
  const DeviceFacts device = testing::h200();
  CHECK(search_space({op, device}, fast, problem) == std::vector<Config>{{128, 4}, {128, 8}, {256, 4}, {256, 8}});
  CHECK(count_legal({op, device}, fast, problem) == 6);
  CHECK_FALSE(Variant{&fast, Config{128, 2}}.broken_constraint({op, device}, problem));
  CHECK(launches_of({op, device}, Variant{&fast, {128, 2}}, problem) == std::vector<Config>{{128, 2}});
  problem.axes[0] = 4096;  // here nothing is worth trying
  CHECK(search_space({op, device}, fast, problem).empty());
  CHECK_FALSE(why_not_eligible({op, device}, fast, problem));
}

TEST_CASE("a parameter that only launches differ by may stand in [search]") {
  testing::Folder folder = testing::scale_folder();
  folder.implementation = testing::replaced(folder.implementation, "[parameters]", "[parameters]\npdl = [0, 1]");
  folder.implementation = testing::replaced(folder.implementation, "[default]", "[default]\npdl = 0");
  folder.implementation =
      testing::replaced(folder.implementation, "[align]", "[search]\nall = [\"pdl == 1 || vector < 8\"]\n[align]");
  folder.implementation += "programmatic = \"pdl\"\n";
  const Op op = folder.parse();
  const Implementation& fast = *op.find("fast");
  REQUIRE(fast.parameters.front().launch_only);
  const Problem bf16 = problem_of_cols(64, 0);
  const std::vector<Config> kernels = {{0, 128, 2}, {0, 128, 4}, {1, 128, 8}, {0, 256, 2}, {0, 256, 4}, {1, 256, 8}};
  const std::vector<Config> searched = searched_space({op, testing::h200()}, fast, bf16);
  CHECK(std::is_permutation(searched.begin(), searched.end(), kernels.begin(), kernels.end()));
  CHECK(launches_of({op, testing::h200()}, Variant{&fast, {1, 128, 8}}, bf16) ==
        std::vector<Config>{{1, 128, 8}, {0, 128, 8}});
}

TEST_CASE("an implementation whose default is not legal is eligible by another config") {
  testing::Folder folder = testing::scale_folder();
  folder.implementation = testing::replaced(folder.implementation, "vector  = 4\n", "vector  = 8\n");
  const Op op = folder.parse();
  const Implementation& fast = op.implementations[0];
  const Problem f32 = problem_of_cols(64, 1);
  REQUIRE(default_of(fast).broken_constraint({op, testing::h200()}, f32));
  CHECK_FALSE(why_not_eligible({op, testing::h200()}, fast, f32));
}

TEST_CASE("the space is exactly what broken_constraint lets pass") {
  const Op op = testing::scale_folder().parse();
  const Implementation& fast = op.implementations[0];
  const auto space = search_space({op, testing::h200()}, fast, problem_of_cols(64, 1));
  std::size_t legal = 0;
  for (const std::int64_t threads : fast.parameters[0].values) {
    for (const std::int64_t vector : fast.parameters[1].values) {
      const Config config = {threads, vector};
      CHECK(is_declared(fast, config));
      legal += !Variant{&fast, config}.broken_constraint({op, testing::h200()}, problem_of_cols(64, 1));
    }
  }
  CHECK(space.size() == legal);
  CHECK(Variant{&fast, Config{128, 8}}.broken_constraint({op, testing::h200()}, problem_of_cols(64, 1)) ==
        "vector * sizeof(dtype) <= 16");
  CHECK(!is_declared(fast, Config{128, 3}));
  CHECK(!is_declared(fast, Config{128}));
}

TEST_CASE("an implementation that cannot serve says why") {
  Op op = testing::scale_folder().parse();
  Implementation& fast = op.implementations[0];
  CHECK(!why_not_eligible({op, testing::h200()}, fast, problem_of_cols(64, 0)));
  DeviceFacts old = testing::h200();
  old.values[0] = 75;
  CHECK(why_not_eligible({op, old}, fast, problem_of_cols(64, 0))->find("requires sm >= 80, and this is sm_75/") !=
        std::string::npos);
  fast.parameters[1].values = {16};
  fast.default_config = {256, 16};
  CHECK(why_not_eligible({op, testing::h200()}, fast, problem_of_cols(64, 0))
            ->find("the default breaks vector * sizeof(dtype) <= 16") != std::string::npos);
}

TEST_CASE("a config is read back from its text, and only a declared one is") {
  const Op op = testing::scale_folder().parse();
  const Implementation& fast = op.implementations[0];
  CHECK(to_string(fast, Config{256, 4}) == "threads=256 vector=4");
  CHECK(parse_config(fast, "threads=256 vector=4") == Config{256, 4});
  CHECK(parse_config(fast, "vector=4 threads=256") == Config{256, 4});
  CHECK(parse_config(fast, "threads=128") == Config{128, 4});  // as a record from before `vector`: with its default
  CHECK(parse_config(fast, "vector=2") == Config{256, 2});
  for (const char* bad :
       {"", " ", "threads=256 vector=3", "threads=250", "threads=256 vector=4 vector=4", "threads=256 vector=4x",
        "threads=256 vector=", "threads=256 vector=4 more=1", "threads", "threads=99999999999999999999 vector=4"}) {
    CAPTURE(bad);
    CHECK(!parse_config(fast, bad));
  }
}

TEST_CASE("a kernel's name is filled with C++ types, words and integers, and is empty when its pass is left out") {
  const Op op = testing::scale_folder().parse();
  const Implementation& fast = op.implementations[0];
  const auto names = [&](const Problem& at) {
    return name_expressions(op, fast.passes, fast.symbols, default_of(fast).frame({op, testing::h200()}, at));
  };
  CHECK(names(problem_of_cols(64, 0)) == std::vector<std::string>{"scale_fast<kiln::bf16, 256, 8, Mode::plain>"});
  CHECK(names(problem_of_cols(64, 1)) == std::vector<std::string>{"scale_fast<float, 256, 8, Mode::plain>"});
  CHECK(names(problem_of_cols(64, 1, 1)) == std::vector<std::string>{""});
}

TEST_CASE("a placeholder without a value is an error that names it") {
  testing::Folder folder = testing::scale_folder();
  folder.implementation = testing::replaced(folder.implementation, "{vector * 2}", "{vector / (threads - 256)}");
  const Op op = folder.parse();
  const Implementation& fast = op.implementations[0];
  const auto frame = default_of(fast).frame({op, testing::h200()}, problem_of_cols(64, 0));
  CHECK_THROWS_WITH_AS(name_expressions(op, fast.passes, fast.symbols, frame),
                       doctest::Contains("division by zero in the placeholder"), Error);
}
