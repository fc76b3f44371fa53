#include "check/finding.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manifest/sources.hpp"

namespace kiln::check {
namespace {

/// The order of findings: folder, then op.toml before implementations and sources, then lines.
auto place_of(const Finding& finding) {
  const std::size_t slash = finding.file.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : finding.file.substr(0, slash);
  return std::tuple(folder, !finding.file.ends_with(manifest::op_file), finding.file, finding.line.number);
}

}  // namespace

std::string_view to_string(Severity severity) noexcept { return severity == Severity::error ? "error" : "warning"; }

std::string to_string(const Finding& finding) {
  return fmt::format("{}:{}: {}: {}{}{}", finding.file, finding.line.number, to_string(finding.severity), finding.what,
                     finding.at.empty() ? "" : " (at " + finding.at + ")",
                     finding.remedy.empty() ? "" : "; " + finding.remedy);
}

void Findings::add(Finding finding) {
  if (finding.line.part) finding.file = *finding.line.part;
  if (known_.emplace(finding.file, finding.line.number, finding.kind).second) all_.push_back(std::move(finding));
}

void Findings::add(const manifest::Mistake& mistake) {
  // A reader says no mistake twice, and may say several of a line.
  all_.push_back({Severity::error,
                  "manifest",
                  mistake.file,
                  mistake.line,
                  mistake.found,
                  mistake.expected.empty() ? "mend the line" : "expected " + mistake.expected,
                  {}});
}

bool Findings::has(const std::string& file, const manifest::Line& line, std::string_view kind) const {
  return known_.contains({line.part ? *line.part : file, line.number, std::string(kind)});
}

std::vector<Finding> Findings::sorted() const {
  std::vector<Finding> sorted = all_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Finding& a, const Finding& b) { return place_of(a) < place_of(b); });
  return sorted;
}

std::size_t Findings::count(Severity severity) const noexcept {
  return static_cast<std::size_t>(
      std::count_if(all_.begin(), all_.end(), [&](const Finding& each) { return each.severity == severity; }));
}

}  // namespace kiln::check
