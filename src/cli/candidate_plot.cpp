#include "cli/candidate_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/record_facts.hpp"
#include "cli/units.hpp"

namespace kiln::cli {
namespace {

using store::TriedCandidate;

constexpr std::size_t first_shown = 14, last_shown = 4;
constexpr double most_times_the_fastest = 5;

std::vector<const TriedCandidate*> timed_by_cost(const store::Record& record) {
  std::vector<const TriedCandidate*> timed;
  for (const TriedCandidate& each : record.candidates)
    if (each.verdict == store::Verdict::ok && each.cost_ns > 0 && is_at_edge(record, each)) timed.push_back(&each);
  std::stable_sort(timed.begin(), timed.end(),
                   [](const TriedCandidate* a, const TriedCandidate* b) { return a->cost_ns < b->cost_ns; });
  return timed;
}

bool won(const store::Record& record, const TriedCandidate& candidate) {
  const store::Choice& edge = record.at_edge();
  return candidate.implementation == edge.implementation && candidate.config == edge.config;
}

std::string cut(std::string text, std::size_t width) {
  if (text.size() > width) text.replace(width - 2, std::string::npos, "..");
  return text;
}

/// Draws '#' up to the interval and '=' to its end, at least one '='.
std::string bar_of(const TriedCandidate& candidate, double longest_ns, std::size_t cells) {
  const auto place = [&](double ns) { return ns / longest_ns * static_cast<double>(cells); };
  const bool cut_off = candidate.low_ns > longest_ns;
  const auto low =
      static_cast<std::size_t>(std::clamp(std::floor(place(candidate.low_ns)), 0.0, static_cast<double>(cells) - 1));
  const auto high = static_cast<std::size_t>(
      std::clamp(std::ceil(place(candidate.high_ns)), static_cast<double>(low) + 1, static_cast<double>(cells)));
  return std::string(low, '#') + (cut_off ? ">" : std::string(high - low, '='));
}

class Plot {
 public:
  Plot(const store::Record& record, std::size_t width) : record_(record), timed_(timed_by_cost(record)) {
    std::size_t longest_label = 0;
    for (const TriedCandidate* each : timed_) {
      longest_label = std::max(longest_label, label(*each).size());
      longest_ns_ = std::max(longest_ns_, each->high_ns);
    }
    if (!timed_.empty()) longest_ns_ = std::min(longest_ns_, most_times_the_fastest * timed_.front()->cost_ns);
    constexpr std::size_t around = 4 + 2 + 2 + 9 + 2 + 11;  // indent, gaps, the time and "the default"
    const std::size_t columns = std::max<std::size_t>(width, around + 30) - around;
    label_ = std::min(longest_label, columns / 2);
    cells_ = columns - label_;
  }

  [[nodiscard]] std::string text() const {
    if (timed_.size() < 2) return {};
    std::string text;
    std::size_t folded = 0;
    for (std::size_t i = 0; i < timed_.size(); ++i) {
      if (!is_shown(i)) {
        ++folded;
        continue;
      }
      if (folded > 0) text += fmt::format("    ... {} more\n", folded);
      folded = 0;
      text += line(*timed_[i]);
    }
    return text;
  }

 private:
  static std::string label(const TriedCandidate& candidate) {
    return candidate.implementation + " " + candidate.config;
  }

  [[nodiscard]] bool is_shown(std::size_t at) const {
    return timed_.size() <= first_shown + last_shown + 1 || at < first_shown || at + last_shown >= timed_.size() ||
           timed_[at]->baseline || won(record_, *timed_[at]);
  }

  [[nodiscard]] std::string line(const TriedCandidate& candidate) const {
    const char* mark = won(record_, candidate) ? "serves" : candidate.baseline ? "the default" : "";
    std::string line =
        fmt::format("    {:<{}}  {:<{}}  {:>9}  {}", cut(label(candidate), label_), label_,
                    bar_of(candidate, longest_ns_, cells_), cells_, format_time(candidate.cost_ns), mark);
    line.erase(line.find_last_not_of(' ') + 1);
    return line + '\n';
  }

  const store::Record& record_;
  std::vector<const TriedCandidate*> timed_;
  double longest_ns_ = 0;
  std::size_t label_ = 0, cells_ = 0;
};

}  // namespace

std::string plot(const store::Record& record, std::size_t width) { return Plot(record, width).text(); }

}  // namespace kiln::cli
