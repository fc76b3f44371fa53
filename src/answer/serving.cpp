#include "answer/serving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "jit/library.hpp"
#include "manifest/text.hpp"

namespace kiln::answer {

namespace {

/// The rule that rules the implementation out: what it requires, else the first constraint that its default breaks and that no parameter
/// can mend, else the first that the default breaks. Empty where its default is legal.
std::string rule_broken(const manifest::Op& op, const manifest::Implementation& implementation, const Problem& problem,
                        const manifest::DeviceFacts& device) {
  const auto frame = manifest::make_frame(op, &implementation, problem, device, implementation.default_config);
  if (implementation.requires_ && !implementation.requires_->evaluate(frame).truth())
    return implementation.requires_text;
  std::string first;
  for (const manifest::Expression& each : implementation.constraints) {
    if (each.evaluate(frame).truth()) continue;
    const std::vector<int> slots = each.slots();
    if (slots.empty() || slots.back() < op.first_parameter()) return std::string(each.text());
    if (first.empty()) first = each.text();
  }
  return first;
}

}  // namespace

Usable usable(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device,
              std::string_view name, std::string_view config_text) {
  Usable result;
  const manifest::Implementation* implementation = op.find(name);
  if (implementation == nullptr) {
    result.why_not = fmt::format("its implementation {} is not declared by the op", manifest::quote(name));
    return result;
  }
  auto config = manifest::parse_config(*implementation, config_text);
  if (!config) {
    result.why_not = fmt::format("its config {} is outside the declared space of '{}'", manifest::quote(config_text),
                                 implementation->name);
    return result;
  }
  if (auto why = manifest::why_not_eligible(op, *implementation, problem, device)) {
    result.why_not = fmt::format("'{}' cannot serve here: {}", name, *why);
    return result;
  }
  if (auto broken = manifest::broken_constraint(op, *implementation, problem, device, *config)) {
    result.why_not = fmt::format("its config breaks the constraint '{}'", *broken);
    return result;
  }
  if (implementation->is_library()) {
    const auto frame = manifest::make_frame(op, implementation, problem, device, *config);
    if (auto why = jit::why_library_refuses(op, *implementation, frame)) {
      result.why_not = std::move(*why);
      return result;
    }
  }
  result.implementation = implementation;
  result.config = std::move(*config);
  return result;
}

std::string rules_broken(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rules;  // with the implementations that they rule out
  for (const manifest::Implementation& each : op.implementations) {
    if (each.is_library()) continue;
    std::string rule = rule_broken(op, each, problem, device);
    if (rule.empty()) continue;
    const auto known = std::ranges::find(rules, rule, [](const auto& of) { return of.first; });
    if (known != rules.end())
      known->second.push_back(each.name);
    else
      rules.emplace_back(std::move(rule), std::vector<std::string>{each.name});
  }
  std::string text;
  for (const auto& [rule, names] : rules)
    text += fmt::format("{}{} need{} '{}'", text.empty() ? "" : "; ", fmt::join(names, ", "),
                        names.size() == 1 ? "s" : "", rule);
  return text;
}

Usable default_for(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device) {
  Usable result;
  for (const manifest::Implementation& implementation : op.implementations) {
    if (implementation.is_library() || manifest::why_not_eligible(op, implementation, problem, device)) continue;
    if (manifest::broken_constraint(op, implementation, problem, device, implementation.default_config)) continue;
    result.implementation = &implementation;
    result.config = implementation.default_config;
    return result;
  }
  const std::string rules = rules_broken(op, problem, device);
  result.why_not = fmt::format("no implementation of '{}' has a default that is legal for {}{}{}", op.name,
                               manifest::display_text(op, problem), rules.empty() ? "" : ": ", rules);
  return result;
}

Servings servings_of(const manifest::Op& op, const Problem& bucket, const manifest::DeviceFacts& device,
                     const store::Record& record) {
  Servings servings;
  const auto own = manifest::parse_bucket(op, record.bucket);
  const bool keeps_sizes = own && manifest::open_sizes(op, *own) == manifest::open_sizes(op, bucket);
  const auto add = [&](const store::Choice& choice) {
    const auto region = keeps_sizes ? manifest::parse_region(op, bucket, choice.sizes) : manifest::whole_of(op, bucket);
    Usable served;
    if (region)
      served = usable(op, region->high, device, choice.implementation, choice.config);
    else
      served.why_not = fmt::format("its sizes {} are not of this bucket", manifest::quote(choice.sizes));
    if (served.implementation == nullptr) {
      ++servings.unusable;
      if (servings.why_not.empty()) servings.why_not = std::move(served.why_not);
      return;
    }
    auto& role = choice.role == store::Role::fastest ? servings.fastest : servings.without_library;
    role.push_back({*region, std::move(served), choice});
  };
  for (const store::Choice& choice : record.choices) add(choice);
  if (!keeps_sizes) {
    std::ranges::reverse(servings.fastest);
    std::ranges::reverse(servings.without_library);
  }
  return servings;
}

}  // namespace kiln::answer
