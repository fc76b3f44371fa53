#include "check/places.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "jit/launch_form.hpp"

namespace kiln::check {
namespace {

using manifest::Expression;
using manifest::Pass;
using manifest::Range;
using manifest::TomlValue;

constexpr std::int64_t any_number = std::numeric_limits<std::int64_t>::max();
constexpr std::array<std::string_view, 3> dimensions = {"x", "y", "z"};
constexpr std::int64_t most_block_z = 64;

/// The expressions of one pass. `key` and `index` tell apart findings of one line.
class PassPlaces {
 public:
  PassPlaces(const Pass& pass, const TomlValue* table, std::vector<Place>& places)
      : pass_(pass), table_(table), places_(places) {
    add_name();
    for (std::size_t i = 0; i < dimensions.size(); ++i) add_sizes(i);
    add("shared", "'shared'", line("shared"), pass.shared, {0, any_number}, "0 or more bytes");
    add("programmatic", "'programmatic'", line("programmatic"), pass.programmatic);
    if (pass.when) add("when", "'when'", line("when"), *pass.when);
    if (pass.model) add_model(*pass.model);
    for (std::size_t i = 0; i < pass.arguments.size(); ++i) add_argument(i, pass.arguments[i]);
  }

 private:
  [[nodiscard]] const TomlValue* list(std::string_view key) const {
    return table_ == nullptr ? nullptr : table_->find(key);
  }
  [[nodiscard]] manifest::Line line(std::string_view key) const {
    const TomlValue* const value = list(key);
    return value == nullptr ? pass_.line : value->line;
  }

  void add(std::string kind, std::string what, const manifest::Line& at, const Expression& expression,
           Range limits = {}, std::string remedy = {}) {
    const bool is_condition = kind == "when";
    places_.push_back({std::move(kind), std::move(what), at, expression,
                       is_condition ? std::optional<Expression>() : pass_.when, limits, std::move(remedy), true});
  }

  void add_name() {
    for (const Expression& each : pass_.name.placeholders)
      add("kernel", fmt::format("the placeholder '{}'", each.text()), line("kernel"), each);
  }

  void add_sizes(std::size_t i) {
    const std::string_view name = dimensions[i];
    const auto at = [&](std::string_view key) { return line_of_item(list(key), i, pass_.line); };
    const std::int64_t most = i == 0 ? jit::most_grid_x : jit::most_grid_yz;
    add(fmt::format("grid_{}", name), fmt::format("the grid's {}", name), at("grid"), pass_.grid[i], {1, most},
        i == 0 ? fmt::format("1 to {}: round up with ceil_div, or bound the size by a constraint", most)
               : fmt::format("1 to {}: put the size that grows on x, which takes {}, or bound it by a constraint", most,
                             jit::most_grid_x));
    add(fmt::format("block_{}", name), fmt::format("the block's {}", name), at("block"), pass_.block[i],
        {1, i == 2 ? most_block_z : any_number}, i == 2 ? fmt::format("1 to {}", most_block_z) : "1 or more");
    add(fmt::format("cluster_{}", name), fmt::format("the cluster's {}", name), at("cluster"), pass_.cluster[i],
        {1, most_cluster}, fmt::format("1 to {}", most_cluster));
  }

  void add_argument(std::size_t i, const manifest::Argument& argument) {
    const manifest::Line at = line_of_item(list("args"), i, pass_.line);
    const auto kind = [&](std::string_view part) { return fmt::format("argument_{}_{}", i + 1, part); };
    for (std::size_t member = 0; member < argument.members.size(); ++member)
      if (const manifest::Argument& each = argument.members[member]; each.kind == manifest::ArgumentKind::expression)
        add(kind(fmt::format("member_{}", member + 1)), fmt::format("member {} of argument {}", member + 1, i + 1), at,
            each.value, jit::range_of(each.type), "a type that holds it");
    if (argument.kind == manifest::ArgumentKind::expression)
      add(kind("value"), fmt::format("argument {}", i + 1), at, argument.value, jit::range_of(argument.type),
          "a type that holds it");
    const auto add_map = [&](std::string_view part, const std::vector<Expression>& list, std::int64_t most) {
      for (const Expression& each : list) {
        add(kind(part), fmt::format("the {} of argument {}", part, i + 1), at, each, {1, most},
            fmt::format("1 to {}", most));
        places_.back().when = argument.when ? argument.when : pass_.when;
        places_.back().may_exceed = true;
      }
    };
    if (argument.kind != manifest::ArgumentKind::tensor_map && argument.kind != manifest::ArgumentKind::workspace_map)
      return;
    add_map("shape", argument.shape, manifest::most_tensor_map_size);
    add_map("stride", argument.strides, manifest::most_tensor_map_stride);
    add_map("box", argument.box, manifest::most_tensor_map_box);
  }

  void add_model(const manifest::PassModel& model) {
    const TomlValue* const table = list("model");
    const auto estimate = [&](std::string_view key, const std::optional<Expression>& value) {
      if (!value) return;
      add(fmt::format("model_{}", key), fmt::format("'{}' of [pass.model]", key),
          table == nullptr ? pass_.line : line_at(*table, {key}), *value, {0, any_number}, "0 or more");
    };
    estimate("operations", model.operations);
    estimate("read_bytes", model.read_bytes);
    estimate("traffic_bytes", model.traffic_bytes);
    estimate("written_bytes", model.written_bytes);
    estimate("memory_bytes", model.memory_bytes);
    estimate("shared_bytes", model.shared_bytes);
    estimate("bytes_in_flight", model.bytes_in_flight);
    estimate("round_trips", model.round_trips);
    estimate("registers", model.registers);
    estimate("busy_blocks", model.busy_blocks);
  }

  const Pass& pass_;
  const TomlValue* table_;
  std::vector<Place>& places_;
};

void add_passes(std::span<const Pass> passes, const TomlValue* list, std::vector<Place>& places) {
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const bool is_there = list != nullptr && i < list->items.size();
    PassPlaces(passes[i], is_there ? &list->items[i] : nullptr, places);
  }
}

void add_tensors(const manifest::Op& op, const TomlValue& document, std::vector<Place>& places) {
  for (const manifest::Tensor& tensor : op.tensors) {
    const auto add = [&](std::string_view key, const std::vector<Expression>& sizes) {
      const TomlValue* const list = value_at(document, {"tensors", tensor.name, key});
      for (std::size_t i = 0; i < sizes.size(); ++i)
        places.push_back({fmt::format("{}_of_{}", key, tensor.name),
                          fmt::format("the {} of '{}'", key, tensor.name),
                          line_of_item(list, i, line_at(document, {"tensors", tensor.name})),
                          sizes[i],
                          tensor.when,
                          {0, any_number},
                          "0 or more elements"});
    };
    add("shape", tensor.shape);
    add("strides", tensor.strides);
  }
}

void add_runtime(const manifest::Op& op, const TomlValue& document, std::vector<Place>& places) {
  for (const manifest::Runtime& runtime : op.runtime) {
    const auto add = [&](std::string_view key, const std::optional<Expression>& value) {
      if (!value) return;
      places.push_back({fmt::format("{}_of_{}", key, runtime.name),
                        fmt::format("the {} of '{}'", key, runtime.name),
                        line_at(document, {"runtime", runtime.name, key}),
                        *value,
                        {},
                        jit::range_of(runtime.type),
                        "a value that its type holds"});
    };
    add("default", runtime.default_integer);
    add("verify", runtime.verify_integer);
    add("min", runtime.minimum);
    add("max", runtime.maximum);
  }
}

}  // namespace

Places places_of(const manifest::Op& op, const manifest::Implementation& implementation, const Lines& lines) {
  const TomlValue& document = lines.of(implementation);
  Places result{implementation.file, {}};
  std::vector<Place>& places = result.places;
  add_passes(implementation.passes, document.find("pass"), places);
  for (const manifest::Workspace& each : implementation.workspaces)
    places.push_back({"workspace_" + each.name,
                      fmt::format("the bytes of workspace '{}'", each.name),
                      line_at(document, {"workspace", each.name, "bytes"}),
                      each.bytes,
                      {},
                      {0, any_number},
                      "0 or more bytes"});
  for (const auto& [tensor, bytes] : implementation.alignment) {
    const std::string& name = op.tensors[static_cast<std::size_t>(tensor)].name;
    places.push_back({"align_" + name,
                      fmt::format("the alignment of '{}'", name),
                      line_at(document, {"align", name}),
                      bytes,
                      {},
                      {1, jit::most_alignment},
                      "a power of two"});
  }
  return result;
}

Places places_of(const manifest::Op& op, const Lines& lines) {
  const TomlValue& document = lines.op();
  Places result{manifest::shown_file(op, manifest::op_file), {}};
  add_tensors(op, document, result.places);
  add_runtime(op, document, result.places);
  for (const auto& [key, value] : {std::pair("bytes", op.cost_bytes), {"flops", op.cost_flops}})
    result.places.push_back({fmt::format("cost_{}", key),
                             fmt::format("'{}' of [cost]", key),
                             line_at(document, {"cost", key}),
                             value,
                             {},
                             {0, any_number},
                             "0 or more"});
  add_passes(op.reference, value_at(document, {"reference", "pass"}), result.places);
  return result;
}

Places places_of_prepare(const manifest::Op& op, const Lines& lines) {
  Places result{manifest::shown_file(op, manifest::op_file), {}};
  if (op.prepare) add_passes(op.prepare->passes, value_at(lines.op(), {"prepare", "pass"}), result.places);
  return result;
}

}  // namespace kiln::check
