// Calls of kiln/kiln.h on the fake driver, with null handles and results, structs of any size, names, ids and numbers of any kind, and tensors
// of any shape. Pointers are null or good, as C's arguments can be. Nothing is tuned or compiled, so a launch that is sound finds no record.
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kiln/kiln.h"
#include "support.hpp"

namespace {

using kiln::fuzz::require;

constexpr std::array op_names{"rms_norm", "gemm", "attention_forward", "swiglu", "rotary"};

struct World {
  kiln_engine* engine = nullptr;
  std::vector<kiln_op*> ops;
  std::vector<std::string> names;  // of axes, tensors, values, selections and their words, and some that are none
};

void add_names(World& world, const kiln_op* op) {
  kiln_op_info info = KILN_OP_INFO_INIT;
  require(kiln_op_get_info(op, &info) == KILN_OK, "an op tells what it has", kiln_last_error());
  for (std::uint32_t i = 0; i < info.axes; ++i) {
    kiln_axis_info axis = KILN_AXIS_INFO_INIT;
    require(kiln_op_axis_info(op, i, &axis) == KILN_OK, "an op tells its axes");
    world.names.emplace_back(axis.name);
  }
  for (std::uint32_t i = 0; i < info.tensors; ++i) {
    kiln_tensor_info tensor = KILN_TENSOR_INFO_INIT;
    require(kiln_op_tensor_info(op, i, &tensor) == KILN_OK, "an op tells its tensors");
    world.names.emplace_back(tensor.name);
  }
  for (std::uint32_t i = 0; i < info.values; ++i) {
    kiln_value_info value = KILN_VALUE_INFO_INIT;
    require(kiln_op_value_info(op, i, &value) == KILN_OK, "an op tells its values");
    world.names.emplace_back(value.name);
  }
  for (std::uint32_t i = 0; i < info.selections; ++i) {
    kiln_selection_info selection = KILN_SELECTION_INFO_INIT;
    require(kiln_op_selection_info(op, i, &selection) == KILN_OK, "an op tells its types and choices");
    world.names.emplace_back(selection.name);
    for (std::size_t word = 0; word < selection.value_count; ++word) world.names.emplace_back(selection.values[word]);
  }
}

World& world() {
  static World* const made = [] {
    setenv("KILN_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 0);
    for (const char* none : {"KILN_CUBLASLT_LIBRARY", "KILN_NCCL_LIBRARY", "KILN_NVRTC_LIBRARY"})
      setenv(none, "none", 1);
    auto* const world = new World;
    kiln_options options;
    require(kiln_options_init(&options, sizeof options) == KILN_OK, "options have defaults");
    options.overlay = "";
    options.on_miss = KILN_ON_MISS_ERROR;
    options.compile = KILN_COMPILE_NEVER;
    options.isolation = KILN_ISOLATION_IN_PROCESS;
    require(kiln_engine_create(&options, &world->engine) == KILN_OK, "an engine is made", kiln_last_error());
    for (const char* name : op_names) {
      kiln_op* op = nullptr;
      require(kiln_engine_op(world->engine, name, &op) == KILN_OK, "an op is found", kiln_last_error());
      world->ops.push_back(op);
      add_names(*world, op);
    }
    for (const char* each : {"", "stream", "no such name"}) world->names.emplace_back(each);
    return world;
  }();
  return *made;
}

/// One input: what it has not said is 0.
class Calls {
 public:
  Calls(World& of, const std::uint8_t* data, std::size_t size) : world_(of), data_(data, size) {}

  void run() {
    while (data_.remaining_bytes() > 0) {
      op_ = data_.ConsumeIntegralInRange(0, 31) == 0 ? nullptr : world_.ops[index(world_.ops.size())];
      call();
    }
  }

 private:
  std::size_t index(std::size_t count) { return data_.ConsumeIntegralInRange<std::size_t>(0, count - 1); }
  bool rarely() { return data_.ConsumeIntegralInRange(0, 15) == 15; }
  bool seldom() { return data_.ConsumeIntegralInRange(0, 255) == 255; }

  std::int64_t number() {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    constexpr std::array known{
        std::int64_t{0},    std::int64_t{1},  std::int64_t{2},       std::int64_t{64},      std::int64_t{128},
        std::int64_t{4096}, std::int64_t{-1}, std::int64_t{1} << 31, std::int64_t{1} << 62, most,
        -most - 1,          most / 2};
    return rarely() ? data_.ConsumeIntegral<std::int64_t>() : known[index(known.size())];
  }
  template <class Type>
  void* address() {
    return reinterpret_cast<void*>(rarely() ? data_.ConsumeIntegral<std::uintptr_t>() : (1 + index(16)) << 20);
  }
  const char* name() {
    if (rarely()) return nullptr;
    if (rarely())
      return (own_.push_back(std::make_unique<std::string>(data_.ConsumeRandomLengthString(40))), own_.back()->c_str());
    return world_.names[index(world_.names.size())].c_str();
  }
  template <class Struct>
  void disturb(Struct& of) {
    if (rarely()) of.size = rarely() ? data_.ConsumeIntegral<std::size_t>() : sizeof(Struct) + index(17) - 8;
  }
  template <class Result>
  Result* maybe(Result& result) {
    return rarely() ? nullptr : &result;
  }

  void check(kiln_status status) {
    require(status == KILN_OK || status == KILN_NOT_READY || *kiln_last_error() != '\0', "a failure has a sentence");
    require(std::strcmp(kiln_status_name(status), "unknown") != 0, "a status has a name");
    require(status != KILN_INTERNAL, "no exception of an unknown kind is met", kiln_last_error());
  }
  void check(kiln_status status, char* text) {
    check(status);
    require(status == KILN_OK || text == nullptr, "a result of a failed call is not written");
    kiln_free_text(text);
  }

  std::vector<kiln_setting> settings() {
    std::vector<kiln_setting> made(index(6));
    for (kiln_setting& each : made) each = {name(), rarely() ? name() : nullptr, number()};
    if (op_ != nullptr && !rarely()) {  // every axis, so that some problems are good
      kiln_op_info info = KILN_OP_INFO_INIT;
      check(kiln_op_get_info(op_, &info));
      for (std::uint32_t i = 0; i < info.axes; ++i) {
        kiln_axis_info axis = KILN_AXIS_INFO_INIT;
        check(kiln_op_axis_info(op_, i, &axis));
        made.push_back({axis.name, nullptr, number()});
      }
    }
    return made;
  }
  std::vector<kiln_argument> arguments() {
    std::vector<kiln_argument> made(index(8));
    for (kiln_argument& each : made)
      each = {name(),   static_cast<std::int32_t>(rarely() ? number() : static_cast<std::int64_t>(index(3))),
              0,        address<void>(),
              number(), data_.ConsumeFloatingPoint<double>()};
    return made;
  }
  template <class Entry>
  const Entry* array(const std::vector<Entry>& of) {
    return rarely() ? nullptr : of.data();
  }

  kiln_problem problem() {
    kiln_problem made = KILN_PROBLEM_INIT;
    const auto given = settings();
    check(kiln_op_problem(op_, array(given), given.size(), &made));
    if (rarely()) made.axes[index(KILN_MAX_AXES)] = number();
    if (rarely()) made.op = data_.ConsumeIntegral<std::uint32_t>();
    disturb(made);
    return made;
  }

  std::vector<kiln_tensor> tensors() {
    std::vector<kiln_tensor> made;
    const std::int64_t size = number(), other = rarely() ? number() : 64;
    const auto type = static_cast<kiln_dtype>(index(6));
    for (std::uint32_t id = 0; op_ != nullptr; ++id) {
      kiln_tensor_info of = KILN_TENSOR_INFO_INIT;
      if (kiln_op_tensor_info(op_, id, &of) != KILN_OK) break;
      if (of.optional != 0 || *of.when != '\0' ? !rarely() : seldom()) continue;
      kiln_tensor each = KILN_TENSOR_INIT;
      each.id = seldom() ? data_.ConsumeIntegral<std::uint32_t>() : id;
      each.type = seldom() ? static_cast<kiln_dtype>(number()) : rarely() ? static_cast<kiln_dtype>(index(10)) : type;
      each.rank = seldom() ? static_cast<std::int32_t>(number()) : of.rank;
      each.device = seldom() ? static_cast<std::int32_t>(number()) : 0;
      each.address = reinterpret_cast<void*>(seldom() ? data_.ConsumeIntegral<std::uintptr_t>() : (id + 1) << 24);
      std::int64_t dense = 1;
      for (int i = KILN_MAX_RANK; i-- > 0;) {  // one of two sizes for each name that a shape has
        const bool is_first = i < of.rank && of.shape[i][0] % 2 == 0;
        each.sizes[i] = seldom() ? number() : is_first ? size : other;
        each.strides[i] = seldom() ? number() : dense;
        if (i < of.rank && __builtin_mul_overflow(dense, each.sizes[i], &dense)) dense = 1;
      }
      if (seldom()) each.size = index(200);
      made.push_back(each);
    }
    return made;
  }

  void bind() {
    kiln_binding binding = KILN_BINDING_INIT;
    const auto given = settings();
    const auto values = arguments();
    check(kiln_op_binding(op_, array(given), rarely() ? given.size() : 0, array(values), rarely() ? values.size() : 0,
                          &binding));
    if (seldom()) disturb(binding);
    if (seldom()) disturb(binding.problem);
    const auto of = tensors();
    if (const kiln_status status =
            kiln_bind(op_, seldom() ? nullptr : &binding, seldom() ? nullptr : of.data(), of.size());
        status != KILN_OK)
      return check(status);
    char* text = nullptr;
    check(kiln_op_describe(op_, &binding.problem, &text), text);
    launch(binding.problem, binding.arguments);
  }

  void launch(const kiln_problem& problem, const kiln_arguments& arguments) {
    std::int32_t origin = -1;
    const auto function = data_.ConsumeBool() ? kiln_launch : kiln_try_launch;
    check(function(op_, &problem, &arguments, nullptr, maybe(origin)));
  }

  void call() {
    char* text = nullptr;
    std::uint32_t id = 0;
    kiln_arguments arguments = KILN_ARGUMENTS_INIT;
    switch (index(16)) {
      case 0: return check(kiln_op_axis(op_, name(), maybe(id)));
      case 1: return check(kiln_op_tensor(op_, name(), maybe(id)));
      case 2: return check(kiln_op_value(op_, name(), maybe(id)));
      case 3: {
        const kiln_problem of = problem();
        return check(kiln_op_describe(op_, rarely() ? nullptr : &of, &text), text);
      }
      case 4: {
        const auto values = this->arguments();
        disturb(arguments);
        return check(kiln_op_arguments(op_, array(values), values.size(), maybe(arguments)));
      }
      case 5: {
        const auto values = this->arguments();
        check(kiln_op_arguments(op_, values.data(), values.size(), &arguments));
        disturb(arguments);
        return launch(problem(), arguments);
      }
      case 6:
        disturb(arguments);
        check(kiln_set_integer(maybe(arguments), data_.ConsumeIntegral<std::uint32_t>(), number()));
        check(kiln_set_real(maybe(arguments), data_.ConsumeIntegral<std::uint32_t>(),
                            data_.ConsumeFloatingPoint<double>()));
        return check(kiln_set_length(maybe(arguments), data_.ConsumeIntegral<std::uint32_t>(), nullptr));
      case 7: {
        const kiln_problem of[]{problem(), problem()};
        kiln_coverage found = KILN_COVERAGE_INIT;
        disturb(found);
        const auto function = data_.ConsumeBool() ? kiln_engine_prepare : kiln_engine_coverage;
        return check(function(world_.engine, op_, rarely() ? nullptr : of, index(3), nullptr, maybe(found), &text),
                     text);
      }
      case 8: {
        const kiln_problem of = problem();
        return check(kiln_engine_explain(rarely() ? nullptr : world_.engine, op_, rarely() ? nullptr : &of,
                                         data_.ConsumeBool(), &text),
                     text);
      }
      case 9: return info<kiln_op_info>(KILN_OP_INFO_INIT, [&](auto* of) { return kiln_op_get_info(op_, of); });
      case 10:
        return info<kiln_tensor_info>(KILN_TENSOR_INFO_INIT,
                                      [&](auto* of) { return kiln_op_tensor_info(op_, small(), of); });
      case 11:
        return info<kiln_selection_info>(KILN_SELECTION_INFO_INIT,
                                         [&](auto* of) { return kiln_op_selection_info(op_, small(), of); });
      case 12:
        return info<kiln_stats>(KILN_STATS_INIT,
                                [&](auto* of) { return kiln_engine_stats(rarely() ? nullptr : world_.engine, of); });
      case 13: return tuner();
      default: return bind();
    }
  }

  std::uint32_t small() {
    return rarely() ? data_.ConsumeIntegral<std::uint32_t>() : static_cast<std::uint32_t>(index(12));
  }
  template <class Struct, class Function>
  void info(Struct of, const Function& function) {
    disturb(of);
    check(function(maybe(of)));
  }

  void tuner() {
    kiln_tuner* made = nullptr;
    check(kiln_tuner_create(rarely() ? nullptr : world_.engine, &made));
    const kiln_problem low = problem(), high = problem();
    check(kiln_tuner_add(made, name(), rarely() ? nullptr : &low, index(2)));
    check(kiln_tuner_add(made, kiln_op_name(op_), &low, 1));
    check(kiln_tuner_add_between(made, kiln_op_name(op_), rarely() ? nullptr : &low, &high));
    char* text = nullptr;
    check(kiln_tuner_tune(made, 7, &text), text);
    kiln_tuner_destroy(made);
  }

  World& world_;
  FuzzedDataProvider data_;
  kiln_op* op_ = nullptr;
  std::vector<std::unique_ptr<std::string>> own_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Calls(world(), data, size).run();
  return 0;
}
