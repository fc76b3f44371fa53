#include "manifest/variant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace kiln::manifest {
namespace {

// Goes in the manifest's order, because a default may use earlier run-time values.
void fill_defaults(const Op& op, const Problem& problem, std::span<std::int64_t> frame) {
  for (std::size_t i = 0; i < op.runtime.size(); ++i) {
    const auto refuse = [&](const std::string& text, std::string_view why) {
      throw Error(ErrorKind::bad_expression,
                  fmt::format("op '{}': the default '{}' of '{}' has no value at {}: {}", op.name, text,
                              op.runtime[i].name, display_text(op, problem), why));
    };
    if (const auto& real = op.runtime[i].default_real; real && !real->evaluate(frame))
      refuse(real->text(), "it is not finite");
    const auto& expression = op.runtime[i].default_integer;
    if (!expression) continue;
    const Value value = expression->evaluate(frame);
    if (!value.ok()) refuse(expression->text(), to_string(value.status));
    frame[static_cast<std::size_t>(op.first_runtime()) + i] = value.number;
  }
}

/// With `parameters` slots for them, all 0.
std::vector<std::int64_t> frame_with(const Site& site, const Problem& problem, std::size_t parameters) {
  const Op& op = *site.op;
  std::vector<std::int64_t> frame(problem.axes.begin(),
                                  problem.axes.begin() + static_cast<std::ptrdiff_t>(op.axes.size()));
  frame.resize(static_cast<std::size_t>(op.first_static()));
  for (std::size_t i = 0; i < op.selections.size(); ++i) frame.push_back(problem.selections[i]);
  frame.insert(frame.end(), site.device->values.begin(), site.device->values.end());
  frame.resize(frame.size() + parameters);
  fill_defaults(op, problem, frame);
  return frame;
}

}  // namespace

Bucket Site::bucket_of(const Problem& problem) const noexcept { return {*this, manifest::bucket_of(*op, problem)}; }

std::string Bucket::text() const { return fmt::format("{} {}", op->name, display_text(*op, edge)); }

std::vector<std::int64_t> frame_of(const Site& site, const Problem& problem) { return frame_with(site, problem, 0); }

std::string Variant::name() const {
  return fmt::format("{} {}", implementation->name, to_string(*implementation, config));
}

std::vector<std::int64_t> Variant::frame(const Site& site, const Problem& at) const {
  std::vector<std::int64_t> frame =
      frame_with(site, at, implementation == nullptr ? 0 : implementation->parameters.size());
  std::ranges::copy(config, frame.begin() + site.op->first_parameter());
  return frame;
}

std::optional<std::string> Variant::broken_constraint(const Site& site, const Problem& at) const {
  const auto frame = this->frame(site, at);
  for (const Expression& constraint : implementation->constraints) {
    const Value value = constraint.evaluate(frame);
    if (!value.ok()) return fmt::format("{} ({})", constraint.text(), to_string(value.status));
    if (value.number == 0) return constraint.text();
  }
  return std::nullopt;
}

Variant default_of(const Implementation& implementation) { return {&implementation, implementation.default_config}; }

bool is_declared(const Implementation& implementation, std::span<const std::int64_t> config) noexcept {
  const auto& parameters = implementation.parameters;
  return std::equal(parameters.begin(), parameters.end(), config.begin(), config.end(),
                    [](const Parameter& parameter, std::int64_t value) {
                      return parameter.values.empty() ||
                             std::ranges::find(parameter.values, value) != parameter.values.end();
                    });
}

Config kernel_config(const Implementation& implementation, Config config) {
  for (std::size_t i = 0; i < config.size(); ++i)
    if (implementation.parameters[i].launch_only) config[i] = implementation.default_config[i];
  return config;
}

std::string to_string(const Implementation& implementation, std::span<const std::int64_t> config) {
  std::string text;
  for (std::size_t i = 0; i < implementation.parameters.size() && i < config.size(); ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "" : " ", implementation.parameters[i].name, config[i]);
  }
  return text;
}

std::optional<Config> parse_config(const Implementation& implementation, std::string_view text) {
  const auto& parameters = implementation.parameters;
  const bool may_lack = !implementation.is_library() && implementation.default_config.size() == parameters.size();
  Config config = may_lack ? implementation.default_config : Config(parameters.size());
  std::vector<bool> given(parameters.size(), false);
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    if (part.empty()) continue;
    const std::size_t sign = part.find('=');
    const auto parameter = std::ranges::find(parameters, part.substr(0, sign), &Parameter::name);
    const auto index = static_cast<std::size_t>(parameter - parameters.begin());
    if (sign == std::string_view::npos || parameter == parameters.end() || given[index]) return std::nullopt;
    given[index] = true;
    const auto [end, error] = std::from_chars(part.data() + sign + 1, part.data() + part.size(), config[index]);
    if (error != std::errc{} || end != part.data() + part.size()) return std::nullopt;
  }
  const auto lacking = static_cast<std::size_t>(std::ranges::count(given, false));
  if (lacking > 0 && (!may_lack || lacking == parameters.size())) return std::nullopt;
  if (!is_declared(implementation, config)) return std::nullopt;
  return config;
}

}  // namespace kiln::manifest
