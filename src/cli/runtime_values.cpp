#include "cli/runtime_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "cli/problem_set.hpp"
#include "kiln/error.hpp"
#include "manifest/names.hpp"
#include "manifest/text.hpp"

namespace kiln::cli {
namespace {

template <class Number>
Number parse_number(const manifest::Op& op, const manifest::Setting& setting) {
  Number number{};
  const std::string& text = setting.value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size())
    throw Error(ErrorKind::bad_input,
                fmt::format("op '{}': run-time value '{}' is {}, expected {}", op.name, setting.name,
                            manifest::quote(text), std::is_integral_v<Number> ? "an integer" : "a number"));
  return number;
}

/// Whether a problem or a launch of the op has the name; a tensor of it is refused with the problem.
void check_known(const manifest::Op& op, const std::string& name) {
  std::vector<std::string> names = manifest::names_of_problem(op);
  for (const manifest::Runtime& each : op.runtime) names.push_back(each.name);
  const bool is_tensor = std::ranges::find(op.tensors, name, &manifest::Tensor::name) != op.tensors.end();
  if (is_tensor || std::ranges::find(names, name) != names.end()) return;
  throw Error(ErrorKind::bad_input, fmt::format("op '{}': {} is unknown{}, expected {}", op.name, manifest::quote(name),
                                                manifest::did_you_mean(name, names), manifest::one_of(names)));
}

}  // namespace

tune::Placement take_runtime_values(const manifest::Op& op, std::vector<std::string>& words) {
  tune::Placement placement;
  std::set<std::string> given;
  std::vector<std::string> others;
  for (const std::string& word : words) {
    const manifest::Setting setting = parse_setting(word);
    check_known(op, setting.name);
    const auto found = std::find_if(op.runtime.begin(), op.runtime.end(),
                                    [&](const manifest::Runtime& value) { return value.name == setting.name; });
    if (found == op.runtime.end()) {
      others.push_back(word);
      continue;
    }
    if (!given.insert(setting.name).second)
      throw Error(ErrorKind::bad_input,
                  fmt::format("op '{}': '{}' is given twice, expected it once", op.name, setting.name));
    const auto index = static_cast<std::uint8_t>(found - op.runtime.begin());
    if (found->is_integer())
      placement.runtime.emplace_back(RuntimeId{index, RuntimeId::Kind::integer},
                                     parse_number<std::int64_t>(op, setting));
    else
      placement.reals.emplace_back(
          RuntimeId{index,
                    found->type == manifest::RuntimeType::f64 ? RuntimeId::Kind::real64 : RuntimeId::Kind::real32},
          parse_number<double>(op, setting));
  }
  words = std::move(others);
  return placement;
}

}  // namespace kiln::cli
