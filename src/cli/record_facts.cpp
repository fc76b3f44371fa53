#include "cli/record_facts.hpp"

#include <algorithm>
#include <sstream>

namespace kiln::cli {
namespace {

std::size_t digits_at(std::string_view text, std::size_t at) {
  const std::size_t end = text.find_first_not_of("0123456789", at);
  return (end == std::string_view::npos ? text.size() : end) - at;
}

}  // namespace

bool reads_before(std::string_view a, std::string_view b) {
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::size_t digits = digits_at(a, i), others = digits_at(b, j);
    if (digits > 0 && digits != others && others > 0) return digits < others;
    if (a[i] != b[j]) return a[i] < b[j];
    ++i;
    ++j;
  }
  return a.size() < b.size();
}

std::string config_of(const store::Choice& choice) { return choice.implementation + " " + choice.config; }

const store::Choice* edge_without_library(const store::Record& record) {
  const store::Choice* last = nullptr;
  for (const store::Choice& each : record.choices)
    if (each.role == store::Role::without_library) last = &each;
  return last;
}

std::size_t intervals_of(const store::Record& record) {
  return static_cast<std::size_t>(std::ranges::count(record.choices, store::Role::fastest, &store::Choice::role));
}

std::set<std::string> configs_of(const store::Record& record) {
  std::set<std::string> names;
  for (const store::Choice& each : record.choices)
    if (each.role == store::Role::fastest) names.insert(config_of(each));
  return names;
}

bool is_at_edge(const store::Record& record, const store::TriedCandidate& candidate) {
  std::istringstream sizes(candidate.sizes);
  const std::string bucket = ' ' + record.bucket + ' ';
  for (std::string size; sizes >> size;)
    if (bucket.find(' ' + size + ' ') == std::string::npos) return false;
  return true;
}

Rates rates_of(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device, double ns) {
  if (!(ns > 0)) return {};
  const auto frame = manifest::frame_of({op, device}, problem);
  const auto per_second = [&](const manifest::Expression& amount) {
    const manifest::Value value = amount.evaluate(frame);
    return value.ok() ? static_cast<double>(value.number) / (ns * 1e-9) : 0.0;
  };
  return {per_second(op.cost_bytes), per_second(op.cost_flops)};
}

}  // namespace kiln::cli
