// kiln/kiln.h: that calls arrive, errors are told, and nothing is thrown. tests/consumer/main.c is C itself.
#include "kiln/kiln.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cuda/nvrtc_api.hpp"
#include "fake_cuda/fixture.hpp"

namespace {

using Json = nlohmann::ordered_json;

bool no_machine() {
  static const bool missing = [] {
    const char* path = std::getenv("KILN_CUDA_LIBRARY");
    return path == nullptr || kiln::cuda::Driver::find() == nullptr || kiln::cuda::Nvrtc::find() == nullptr;
  }();
  return missing;
}

/// The text, which is then free.
std::string taken(char* text) {
  const std::string copy(text == nullptr ? "" : text);
  kiln_free_text(text);
  return copy;
}

std::string ops_of_tests() { return (std::filesystem::path(KILN_SOURCE_DIR) / "tests/e2e/ops").string(); }

/// In this process, with the ops of one folder and an overlay in memory.
kiln_options options_for(const char* const* folder) {
  kiln_options options;
  REQUIRE(kiln_options_init(&options, sizeof options) == KILN_OK);
  options.template_paths = folder;
  options.template_path_count = 1;
  options.overlay = "";
  options.isolation = KILN_ISOLATION_IN_PROCESS;
  options.compile_workers = 1;
  return options;
}

/// An engine with the ops of tests/e2e/ops, and its op `scale`.
struct Machine {
  fake_cuda_tests::Fixture fake;
  kiln_engine* engine = nullptr;
  kiln_op* scale = nullptr;

  explicit Machine(int32_t on_miss = KILN_ON_MISS_NEAREST) {
    const std::string ops = ops_of_tests();
    const char* const path = ops.c_str();
    kiln_options options = options_for(&path);
    options.on_miss = on_miss;
    REQUIRE(kiln_engine_create(&options, &engine) == KILN_OK);
    REQUIRE(kiln_engine_op(engine, "scale", &scale) == KILN_OK);
  }
  ~Machine() {
    kiln_op_destroy(scale);
    kiln_engine_destroy(engine);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  [[nodiscard]] const void* memory(std::size_t bytes) const {
    return reinterpret_cast<const void*>(fake.allocate(bytes));
  }
  [[nodiscard]] kiln_problem problem(int64_t rows, int64_t cols) const {
    kiln_problem made = KILN_PROBLEM_INIT;
    const kiln_setting settings[] = {KILN_SIZE("rows", rows), KILN_SIZE("cols", cols), KILN_WORD("dtype", "f32")};
    REQUIRE(kiln_op_problem(scale, settings, 3, &made) == KILN_OK);
    return made;
  }
  [[nodiscard]] uint32_t tensor(const char* name) const {
    uint32_t id = 99;
    REQUIRE(kiln_op_tensor(scale, name, &id) == KILN_OK);
    return id;
  }
};

std::int64_t runs() { return fake_cuda_tests::query("launches scale_"); }

}  // namespace

TEST_CASE("a launch from C runs the kernel and tells its origin" * doctest::skip(no_machine())) {
  const Machine machine;
  const kiln_problem problem = machine.problem(3, 64);
  kiln_arguments arguments = KILN_ARGUMENTS_INIT;
  const kiln_argument values[] = {KILN_ADDRESS("x", machine.memory(768)), KILN_ADDRESS("y", machine.memory(768)),
                                  KILN_REAL("factor", 2.0)};
  REQUIRE(kiln_op_arguments(machine.scale, values, 3, &arguments) == KILN_OK);
  const std::int64_t before = runs();
  int32_t origin = -1;
  CHECK(kiln_launch(machine.scale, &problem, &arguments, machine.fake.stream, &origin) == KILN_OK);
  CHECK(std::string(kiln_origin_name(origin)) == "default");
  CHECK(kiln_launch(machine.scale, &problem, &arguments, machine.fake.stream, nullptr) == KILN_OK);
  CHECK(runs() == before + 2);

  uint32_t stride = 0, rows = 0;
  REQUIRE(kiln_op_value(machine.scale, "stride", &stride) == KILN_OK);
  REQUIRE(kiln_op_axis(machine.scale, "rows", &rows) == KILN_OK);
  kiln_problem fewer = problem;
  fewer.axes[rows] = 2;
  REQUIRE(kiln_set_integer(&arguments, stride, 96) == KILN_OK);
  kiln_plan* plan = nullptr;
  REQUIRE(kiln_plan_create(machine.scale, &fewer, machine.fake.stream, &plan) == KILN_OK);
  CHECK(kiln_plan_launch(plan, &fewer, &arguments, machine.fake.stream, &origin) == KILN_OK);
  kiln_plan_info info = KILN_PLAN_INFO_INIT;
  REQUIRE(kiln_plan_get_info(plan, &info) == KILN_OK);
  CHECK(std::string(info.implementation) == "tiled");
  CHECK(info.origin == KILN_ORIGIN_DEFAULT);
  kiln_plan_destroy(plan);
  kiln_stats stats = KILN_STATS_INIT;
  REQUIRE(kiln_engine_stats(machine.engine, &stats) == KILN_OK);
  CHECK(stats.default_ == 3);
  char* workload = nullptr;
  REQUIRE(kiln_engine_workload(machine.engine, &workload) == KILN_OK);
  CHECK(std::string(workload).find("op    = \"scale\"\naxes  = { rows = [2, 4], cols = 64 }") != std::string::npos);
  kiln_free_text(workload);
}

TEST_CASE("a launch from C that would wait says so" * doctest::skip(no_machine())) {
  const Machine machine;
  const kiln_problem problem = machine.problem(3, 64);
  kiln_arguments arguments = KILN_ARGUMENTS_INIT;
  const kiln_argument values[] = {KILN_ADDRESS("x", machine.memory(768)), KILN_ADDRESS("y", machine.memory(768)),
                                  KILN_REAL("factor", 2.0)};
  REQUIRE(kiln_op_arguments(machine.scale, values, 3, &arguments) == KILN_OK);
  CHECK(kiln_try_launch(machine.scale, &problem, &arguments, machine.fake.stream, nullptr) == KILN_NOT_READY);
  REQUIRE(kiln_engine_prepare(machine.engine, machine.scale, &problem, 1, machine.fake.stream, nullptr, nullptr) ==
          KILN_OK);
  int32_t origin = -1;
  CHECK(kiln_try_launch(machine.scale, &problem, &arguments, machine.fake.stream, &origin) == KILN_OK);
  CHECK(origin == KILN_ORIGIN_DEFAULT);
  CHECK(kiln_try_launch(nullptr, &problem, &arguments, nullptr, nullptr) == KILN_BAD_INPUT);
}

TEST_CASE("tensors are bound from C" * doctest::skip(no_machine())) {
  const Machine machine;
  kiln_binding binding = KILN_BINDING_INIT;
  const kiln_argument factor[] = {KILN_REAL("factor", 2.0)};
  REQUIRE(kiln_op_binding(machine.scale, nullptr, 0, factor, 1, &binding) == KILN_OK);
  CHECK(kiln_launch(machine.scale, &binding.problem, &binding.arguments, machine.fake.stream, nullptr) ==
        KILN_BAD_INPUT);  // nothing was bound
  kiln_tensor tensors[2] = {KILN_TENSOR_INIT, KILN_TENSOR_INIT};
  for (kiln_tensor& each : tensors) {
    each.rank = 2;
    each.device = 0;
    each.address = machine.memory(768);
    each.sizes[0] = 3, each.sizes[1] = 64;
    each.strides[0] = 64, each.strides[1] = 1;
  }
  tensors[0].id = machine.tensor("x");
  tensors[1].id = machine.tensor("y");
  REQUIRE_MESSAGE(kiln_bind(machine.scale, &binding, tensors, 2) == KILN_OK, std::string(kiln_last_error()));
  CHECK(kiln_launch(machine.scale, &binding.problem, &binding.arguments, machine.fake.stream, nullptr) == KILN_OK);
  tensors[1].sizes[0] = 4;
  CHECK(kiln_bind(machine.scale, &binding, tensors, 2) == KILN_BAD_INPUT);
  CHECK(std::string(kiln_last_error()) ==
        "scale: tensor 'y' of shape [rows, cols] has 4 in dimension 0, expected rows = 3 as in 'x'");
  CHECK(kiln_launch(machine.scale, &binding.problem, &binding.arguments, machine.fake.stream, nullptr) == KILN_OK);
}

TEST_CASE("a problem or binding from C that was never made is refused everywhere" * doctest::skip(no_machine())) {
  const Machine machine;
  kiln_problem problem = KILN_PROBLEM_INIT;
  kiln_binding binding = KILN_BINDING_INIT;
  const kiln_setting wrong[] = {KILN_SIZE("rows", 8), KILN_SIZE("column", 64)};
  REQUIRE(kiln_op_problem(machine.scale, wrong, 2, &problem) == KILN_BAD_INPUT);
  const kiln_tensor tensor = KILN_TENSOR_INIT;
  REQUIRE(kiln_bind(machine.scale, &binding, &tensor, 1) == KILN_BAD_INPUT);
  const auto refused = [&](kiln_status status) {
    CHECK(status == KILN_BAD_INPUT);
    CHECK_MESSAGE(std::string(kiln_last_error()).find("was never made") != std::string::npos,
                  std::string(kiln_last_error()));
  };
  const kiln_arguments arguments = KILN_ARGUMENTS_INIT;
  for (const kiln_problem* each : {&problem, &binding.problem}) {
    refused(kiln_launch(machine.scale, each, &arguments, machine.fake.stream, nullptr));
    refused(kiln_try_launch(machine.scale, each, &arguments, machine.fake.stream, nullptr));
    kiln_plan* plan = nullptr;
    refused(kiln_plan_create(machine.scale, each, machine.fake.stream, &plan));
    char* json = nullptr;
    refused(kiln_engine_explain(machine.engine, machine.scale, each, 1, &json));
    kiln_coverage covered = KILN_COVERAGE_INIT;
    CHECK(kiln_engine_prepare(machine.engine, machine.scale, each, 1, machine.fake.stream, &covered, nullptr) ==
          KILN_OK);
    CHECK(covered.hits == 0);
    CHECK(covered.capturable == 0);
  }
  const kiln_problem none = machine.problem(0, 64);
  CHECK(kiln_launch(machine.scale, &none, &arguments, machine.fake.stream, nullptr) == KILN_OK);
}

TEST_CASE("a failure gives its status, and its sentence to its thread alone" * doctest::skip(no_machine())) {
  const Machine machine;
  kiln_op* none = nullptr;
  CHECK(kiln_engine_op(machine.engine, "no_such_op", &none) == KILN_BAD_INPUT);
  CHECK(none == nullptr);
  const std::string said = kiln_last_error();
  CHECK_MESSAGE(said.find("no_such_op") != std::string::npos, said);
  std::string elsewhere = "?";
  std::thread([&] { elsewhere = kiln_last_error(); }).join();
  CHECK(elsewhere.empty());
  CHECK(std::string(kiln_status_name(KILN_BAD_INPUT)) == "bad_input");
  CHECK(std::string(kiln_status_name(KILN_TEAM_FAILED)) == "team_failed");
  CHECK(std::string(kiln_status_name(77)) == "unknown");
}

TEST_CASE("nulls, structs without a size, and numbers that stand for nothing are refused" *
          doctest::skip(no_machine())) {
  const Machine machine(KILN_ON_MISS_ERROR);
  const kiln_problem problem = machine.problem(3, 64);
  kiln_arguments unsized_arguments{};
  CHECK(kiln_launch(machine.scale, &problem, &unsized_arguments, nullptr, nullptr) == KILN_BAD_INPUT);
  CHECK(std::string(kiln_last_error()).find("the size of kiln_arguments is 0") != std::string::npos);
  CHECK(kiln_launch(nullptr, &problem, nullptr, nullptr, nullptr) == KILN_BAD_INPUT);
  kiln_problem beyond = problem;
  beyond.axes[2] = 7;  // by an id of another op
  kiln_arguments any = KILN_ARGUMENTS_INIT;
  CHECK(kiln_launch(machine.scale, &beyond, &any, machine.fake.stream, nullptr) == KILN_BAD_INPUT);
  CHECK(std::string(kiln_last_error()) ==
        "op 'scale': axis number 2 is set, and the op has 2; take the ids of this op's axes");
  CHECK(kiln_engine_create(nullptr, nullptr) == KILN_BAD_INPUT);
  CHECK(std::string(kiln_last_error()) == "engine is null");
  kiln_options options;
  CHECK(kiln_options_init(&options, sizeof options - 8) == KILN_BAD_INPUT);
  CHECK(std::string(kiln_last_error()).find("initialise it with kiln_options_init()") != std::string::npos);
  REQUIRE(kiln_options_init(&options, sizeof options) == KILN_OK);
  options.on_miss = 4;
  kiln_engine* engine = nullptr;
  CHECK(kiln_engine_create(&options, &engine) == KILN_BAD_INPUT);
  CHECK(std::string(kiln_last_error()) == "kiln_options.on_miss is 4, expected 0 to 3");
  options.on_miss = 0;
  options.trust = 9;
  CHECK(kiln_engine_create(&options, &engine) == KILN_BAD_INPUT);
  CHECK(std::string(kiln_last_error()) == "kiln_options.trust is 9, expected 0 to 2");
  options.trust = KILN_TRUST_DEFAULT;
  const char* const bases[] = {"", nullptr};
  options.bases = bases;
  options.base_count = 2;
  CHECK(kiln_engine_create(&options, &engine) == KILN_BAD_INPUT);
  CHECK(std::string(kiln_last_error()) == "kiln_options.bases[1] is null");
  kiln_arguments arguments = KILN_ARGUMENTS_INIT;
  CHECK(kiln_set_real(&arguments, 0xFFFF, 1) == KILN_BAD_INPUT);
  uint32_t stride = 0, factor = 0;
  REQUIRE(kiln_op_value(machine.scale, "stride", &stride) == KILN_OK);
  REQUIRE(kiln_op_value(machine.scale, "factor", &factor) == KILN_OK);
  for (const double each : {1.5, 1e300, -1e300, 0x1p63, std::nan("")}) {
    CHECK(kiln_set_real(&arguments, stride, each) == KILN_BAD_INPUT);
    CHECK(kiln_set_real(&arguments, factor, each) == KILN_OK);
  }
  CHECK(kiln_set_real(&arguments, stride, 1.5) == KILN_BAD_INPUT);
  CHECK(std::string(kiln_last_error()) == "1.5 is given for an integer, expected a whole number of 64 bits");
  CHECK(arguments.runtime[stride & 0xFF] == 0);
  CHECK(kiln_set_real(&arguments, stride, 96.0) == KILN_OK);
  CHECK(arguments.runtime[stride & 0xFF] == 96);
  arguments = KILN_ARGUMENTS_INIT;
  CHECK(kiln_launch(machine.scale, &problem, &arguments, machine.fake.stream, nullptr) == KILN_NOT_TUNED);
  CHECK(kiln_tuner_add(nullptr, "scale", &problem, 1) == KILN_BAD_INPUT);
  CHECK(kiln_tuner_add_between(nullptr, "scale", &problem, &problem) == KILN_BAD_INPUT);
  CHECK(std::string(kiln_last_error()) == "tuner is null");
  CHECK(kiln_tuner_tune(nullptr, KILN_RETUNE_NONE, nullptr) == KILN_BAD_INPUT);
  CHECK(kiln_tuner_compile(nullptr, nullptr) == KILN_BAD_INPUT);
  CHECK(kiln_tuner_deploy(nullptr, "out.kiln", 0, nullptr) == KILN_BAD_INPUT);
  CHECK(kiln_tuner_create(machine.engine, nullptr) == KILN_BAD_INPUT);
  CHECK(kiln_engine_ops(machine.engine, nullptr) == KILN_BAD_INPUT);
  CHECK(kiln_engine_warnings(machine.engine, nullptr) == KILN_BAD_INPUT);
  CHECK(kiln_team_name(nullptr) == KILN_BAD_INPUT);
  kiln_free_text(nullptr);
  kiln_op_destroy(nullptr);
  kiln_engine_destroy(nullptr);
  kiln_plan_destroy(nullptr);
  kiln_tuner_destroy(nullptr);
}

TEST_CASE("an op describes itself to C, in structs and in JSON" * doctest::skip(no_machine())) {
  const Machine machine;
  kiln_op_info info = KILN_OP_INFO_INIT;
  REQUIRE(kiln_op_get_info(machine.scale, &info) == KILN_OK);
  CHECK(std::string(info.name) == "scale");
  CHECK(std::string(info.contract).starts_with("A small op whose answers"));
  CHECK((info.axes == 2 && info.selections == 1 && info.values == 2 && info.tensors == 3));
  kiln_axis_info axis = KILN_AXIS_INFO_INIT;
  REQUIRE(kiln_op_axis_info(machine.scale, 0, &axis) == KILN_OK);
  CHECK((std::string(axis.policy) == "pow2" && axis.maximum == 4096 && axis.on_device == 1));
  CHECK(kiln_op_axis_info(machine.scale, 2, &axis) == KILN_BAD_INPUT);
  kiln_selection_info selection = KILN_SELECTION_INFO_INIT;
  REQUIRE(kiln_op_selection_info(machine.scale, 0, &selection) == KILN_OK);
  REQUIRE(selection.value_count == 2);
  CHECK(std::string(selection.values[1]) == "bf16");
  kiln_value_info value = KILN_VALUE_INFO_INIT;
  REQUIRE(kiln_op_value_info(machine.scale, 1, &value) == KILN_OK);
  uint32_t stride = 0;
  REQUIRE(kiln_op_value(machine.scale, "stride", &stride) == KILN_OK);
  CHECK((std::string(value.default_text) == "cols" && value.id == stride));
  kiln_tensor_info tensor = KILN_TENSOR_INFO_INIT;
  REQUIRE(kiln_op_tensor_info(machine.scale, 0, &tensor) == KILN_OK);
  CHECK((tensor.rank == 2 && std::string(tensor.strides[0]) == "stride"));
  const kiln_problem problem = machine.problem(3, 64);
  char* json = nullptr;
  REQUIRE(kiln_op_describe(machine.scale, &problem, &json) == KILN_OK);
  CHECK(Json::parse(taken(json))["tensors"][0]["sizes"] == Json{3, 64});
  REQUIRE(kiln_op_describe(machine.scale, nullptr, &json) == KILN_OK);
  CHECK_FALSE(Json::parse(taken(json))["tensors"][0].contains("sizes"));
}

TEST_CASE("an engine prepares, covers, explains and lists from C" * doctest::skip(no_machine())) {
  const Machine machine;
  const kiln_problem problems[] = {machine.problem(3, 64), machine.problem(100, 64)};
  kiln_coverage coverage = KILN_COVERAGE_INIT;
  char* json = nullptr;
  REQUIRE(kiln_engine_prepare(machine.engine, machine.scale, problems, 2, machine.fake.stream, &coverage, &json) ==
          KILN_OK);
  CHECK((coverage.total == 2 && coverage.gaps == 2 && coverage.capturable == 1));  // defaults serve
  CHECK(Json::parse(taken(json))["gaps"][0]["serves"] == "default");
  REQUIRE(kiln_engine_coverage(machine.engine, machine.scale, problems, 2, machine.fake.stream, &coverage, nullptr) ==
          KILN_OK);
  CHECK(coverage.total == 2);
  char* text = nullptr;
  REQUIRE(kiln_engine_explain(machine.engine, machine.scale, problems, 0, &text) == KILN_OK);
  CHECK(Json::parse(taken(text))["miss"] == "absent");
  REQUIRE(kiln_engine_explain(machine.engine, machine.scale, problems, 1, &text) == KILN_OK);
  CHECK(taken(text).starts_with("problem: rows=3 cols=64"));
  REQUIRE(kiln_engine_ops(machine.engine, &text) == KILN_OK);
  CHECK(taken(text).find("scale\n") != std::string::npos);
  REQUIRE(kiln_engine_warnings(machine.engine, &text) == KILN_OK);
  taken(text);
  REQUIRE(kiln_engine_check(machine.engine, machine.fake.stream, &text) == KILN_OK);
  CHECK(text == nullptr);
  std::int64_t bytes = -1;
  CHECK(kiln_engine_trim(machine.engine, &bytes) == KILN_OK);
  CHECK(bytes == 0);
  int32_t ended = 0;
  CHECK(kiln_engine_wait_for_tunes(machine.engine, 0, &ended) == KILN_OK);
  CHECK(ended == 1);
}

TEST_CASE("reports to C are JSON where a file's path is no UTF-8" * doctest::skip(no_machine())) {
  const fake_cuda_tests::Fixture fake;
  const std::string ops = ops_of_tests();
  const char* const path = ops.c_str();
  const char* const base = "/nowhere/caf\xe9.kiln";
  kiln_options options = options_for(&path);
  options.on_miss = KILN_ON_MISS_NEAREST;
  options.bases = &base;
  options.base_count = 1;
  kiln_engine* engine = nullptr;
  kiln_op* scale = nullptr;
  REQUIRE(kiln_engine_create(&options, &engine) == KILN_OK);
  REQUIRE(kiln_engine_op(engine, "scale", &scale) == KILN_OK);
  kiln_problem problem = KILN_PROBLEM_INIT;
  const kiln_setting settings[] = {KILN_SIZE("rows", 3), KILN_SIZE("cols", 64), KILN_WORD("dtype", "f32")};
  REQUIRE(kiln_op_problem(scale, settings, 3, &problem) == KILN_OK);
  char* json = nullptr;
  const kiln_status status = kiln_engine_explain(engine, scale, &problem, 0, &json);
  CHECK_MESSAGE(status == KILN_OK, kiln_last_error());
  if (status == KILN_OK) CHECK(Json::parse(taken(json))["layers"][1]["layer"] == "base /nowhere/caf\ufffd.kiln");
  kiln_op_destroy(scale);
  kiln_engine_destroy(engine);

  std::string scratch = (std::filesystem::temp_directory_path() / "kiln-c-XXXXXX").string();
  REQUIRE(::mkdtemp(scratch.data()) != nullptr);
  const auto copied = std::filesystem::path(scratch) / "caf\xe9";
  std::filesystem::copy(ops, copied, std::filesystem::copy_options::recursive);
  const char* const of_copies = copied.c_str();
  options = options_for(&of_copies);
  REQUIRE(kiln_engine_create(&options, &engine) == KILN_OK);
  REQUIRE(kiln_engine_op(engine, "scale", &scale) == KILN_OK);
  REQUIRE_MESSAGE(kiln_op_describe(scale, nullptr, &json) == KILN_OK, kiln_last_error());
  CHECK(taken(json).find("caf\ufffd/scale") != std::string::npos);
  kiln_op_destroy(scale);
  kiln_engine_destroy(engine);
  std::filesystem::remove_all(scratch);
}

TEST_CASE("a team of one is made from C, and an engine takes it" * doctest::skip(no_machine())) {
  fake_cuda_tests::Fixture fake;
  char* name = nullptr;
  REQUIRE(kiln_team_name(&name) == KILN_OK);
  const std::string unique = taken(name);
  CHECK(unique.size() >= 32);  // 128 random bits in hexadecimal
  kiln_team_options options = KILN_TEAM_OPTIONS_INIT;
  options.bytes = 4096;
  options.device = 0;
  kiln_team* team = nullptr;
  CHECK(kiln_team_create(1, 1, unique.c_str(), &options, &team) == KILN_BAD_INPUT);
  REQUIRE_MESSAGE(kiln_team_create(0, 1, unique.c_str(), &options, &team) == KILN_OK, std::string(kiln_last_error()));
  kiln_team_info info = KILN_TEAM_INFO_INIT;
  REQUIRE(kiln_team_get_info(team, &info) == KILN_OK);
  CHECK((info.world == 1 && info.bytes == 4096 && std::string(info.name) == unique));
  kiln_options chosen;
  REQUIRE(kiln_options_init(&chosen, sizeof chosen) == KILN_OK);
  chosen.overlay = "";
  chosen.team = team;
  kiln_engine* engine = nullptr;
  CHECK(kiln_engine_create(&chosen, &engine) == KILN_OK);
  CHECK(kiln_team_reset(team) == KILN_OK);
  CHECK(kiln_team_close(team) == KILN_OK);
  kiln_team_destroy(team);
  kiln_engine_destroy(engine);
}

TEST_CASE("a tuner takes demands from C, reports, and calls on_tune and on_log" * doctest::skip(no_machine())) {
  fake_cuda_tests::Fixture fake;
  std::vector<std::string> heard;
  const std::string ops = ops_of_tests();
  const char* const path = ops.c_str();
  kiln_options options = options_for(&path);
  options.search_trials = 1;
  options.on_tune = [](const kiln_tune_event* event, void* user) {
    if (event->kind == KILN_TUNE_FINISHED) static_cast<std::vector<std::string>*>(user)->emplace_back(event->bucket);
  };
  options.on_log = [](const kiln_log_event* event, void* user) {
    if (event->kind == KILN_LOG_OF_TUNE) static_cast<std::vector<std::string>*>(user)->emplace_back(event->text);
  };
  options.user = &heard;
  kiln_engine* engine = nullptr;
  REQUIRE(kiln_engine_create(&options, &engine) == KILN_OK);
  kiln_op* scale = nullptr;
  REQUIRE(kiln_engine_op(engine, "scale", &scale) == KILN_OK);
  kiln_tuner* tuner = nullptr;
  REQUIRE(kiln_tuner_create(engine, &tuner) == KILN_OK);
  kiln_problem low = KILN_PROBLEM_INIT;
  const kiln_setting settings[] = {KILN_SIZE("rows", 4), KILN_SIZE("cols", 64)};
  REQUIRE(kiln_op_problem(scale, settings, 2, &low) == KILN_OK);
  REQUIRE(kiln_tuner_add(tuner, "scale", &low, 1) == KILN_OK);
  kiln_problem high = low;
  high.axes[0] = 8;
  REQUIRE(kiln_tuner_add_between(tuner, "scale", &low, &high) == KILN_OK);
  char* report = nullptr;
  REQUIRE_MESSAGE(kiln_tuner_tune(tuner, KILN_RETUNE_NONE, &report) == KILN_OK, std::string(kiln_last_error()));
  const Json told = Json::parse(taken(report));
  CHECK(told["wanted"] == 2);  // a bucket twice is one
  CHECK(told["buckets"][0]["outcome"] == "tuned");
  CHECK(heard.size() == 6);  // of each bucket: the log's begin and end, and the event's end
  CHECK(kiln_tuner_tune(tuner, 3, nullptr) == KILN_BAD_INPUT);
  kiln_tuner_destroy(tuner);
  kiln_engine_destroy(engine);
  kiln_op_destroy(scale);  // the last handle ends the engine's resources
}
