#include "answer/serving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "jit/executable.hpp"
#include "jit/library.hpp"
#include "manifest/text.hpp"

namespace kiln::answer {

namespace {

/// The rule that rules the implementation out: what it requires, else the first constraint that its default breaks and
/// that no parameter can mend, else the first that the default breaks. Empty where its default is legal.
std::string rule_broken(const manifest::Site& site, const manifest::Implementation& implementation,
                        const Problem& problem) {
  const auto frame = manifest::default_of(implementation).frame(site, problem);
  if (implementation.requires_ && !implementation.requires_->evaluate(frame).truth())
    return implementation.requires_text;
  std::string first;
  for (const manifest::Expression& each : implementation.constraints) {
    if (each.evaluate(frame).truth()) continue;
    const std::vector<int> slots = each.slots();
    if (slots.empty() || slots.back() < site.op->first_parameter()) return std::string(each.text());
    if (first.empty()) first = each.text();
  }
  return first;
}

}  // namespace

Usable usable(const manifest::Site& site, const Problem& at, std::string_view name, std::string_view config_text) {
  const auto refused = [](std::string why) { return Usable{{}, std::move(why)}; };
  manifest::Variant found{site.op->find(name)};
  if (!found) return refused(fmt::format("its implementation {} is not declared by the op", manifest::quote(name)));
  auto config = manifest::parse_config(*found.implementation, config_text);
  if (!config)
    return refused(
        fmt::format("its config {} is outside the declared space of '{}'", manifest::quote(config_text), name));
  found.config = std::move(*config);
  if (const auto why = manifest::why_not_eligible(site, *found.implementation, at))
    return refused(fmt::format("'{}' cannot serve here: {}", name, *why));
  if (const auto broken = found.broken_constraint(site, at))
    return refused(fmt::format("its config breaks the constraint '{}'", *broken));
  if (auto why = jit::why_library_refuses(site, found, at)) return refused(std::move(*why));
  return {std::move(found), {}};
}

std::string rules_broken(const manifest::Site& site, const Problem& problem) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rules;  // with the implementations that they rule out
  for (const manifest::Implementation& each : site.op->implementations) {
    if (each.is_library()) continue;
    std::string rule = rule_broken(site, each, problem);
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

Usable default_for(const manifest::Site& site, const Problem& problem) {
  for (const manifest::Implementation& each : site.op->implementations) {
    if (each.is_library() || manifest::why_not_eligible(site, each, problem)) continue;
    if (auto variant = manifest::default_of(each); !variant.broken_constraint(site, problem))
      return {std::move(variant), {}};
  }
  const std::string rules = rules_broken(site, problem);
  return {{},
          fmt::format("no implementation of '{}' has a default that is legal for {}{}{}", site.op->name,
                      manifest::display_text(*site.op, problem), rules.empty() ? "" : ": ", rules)};
}

std::vector<manifest::Variant> defaults_of(const manifest::Bucket& bucket) {
  std::vector<manifest::Variant> defaults;
  for (const manifest::Implementation& each : bucket.op->implementations) {
    if (each.is_library() || manifest::why_not_eligible(bucket, each, bucket.edge)) continue;
    auto variant = manifest::default_of(each);
    if (!jit::broken_fixed_constraint(*bucket.op, each, variant.frame(bucket, bucket.edge)))
      defaults.push_back(std::move(variant));
  }
  return defaults;
}

Servings servings_of(const manifest::Bucket& bucket, const store::Record& record) {
  const manifest::Op& op = *bucket.op;
  Servings servings;
  const auto own = manifest::parse_bucket(op, record.bucket);
  const bool keeps_sizes = own && manifest::open_sizes(op, *own) == manifest::open_sizes(op, bucket.edge);
  const auto add = [&](const store::Choice& choice) {
    const auto region =
        keeps_sizes ? manifest::parse_region(op, bucket.edge, choice.sizes) : manifest::whole_of(op, bucket.edge);
    Usable served;
    if (region)
      served = usable(bucket, region->high, choice.implementation, choice.config);
    else
      served.why_not = fmt::format("its sizes {} are not of this bucket", manifest::quote(choice.sizes));
    if (!served) {
      ++servings.unusable;
      if (servings.why_not.empty()) servings.why_not = std::move(served.why_not);
      return;
    }
    auto& role = choice.role == store::Role::fastest ? servings.fastest : servings.without_library;
    role.push_back({std::move(served), *region, choice});
  };
  for (const store::Choice& choice : record.choices) add(choice);
  if (!keeps_sizes) {
    std::ranges::reverse(servings.fastest);
    std::ranges::reverse(servings.without_library);
  }
  return servings;
}

}  // namespace kiln::answer
