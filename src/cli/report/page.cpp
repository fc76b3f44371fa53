// The page around the sections. It asks for nothing from outside, and its policy would not let it.
#include "cli/report/assets.hpp"
#include "cli/report/facts.hpp"
#include "cli/report/html.hpp"
#include "cli/report/sections.hpp"

namespace kiln::cli::report {
namespace {

void draw_head(std::string& out) {
  append(
      out,
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>Kiln report</title>\n<style>{}</style>\n</head>\n<body>\n",
      policy_hash(page_style()), policy_hash(page_script()), page_style());
}

/// When the newest record was tuned: the page's own age is nobody's concern.
std::string newest_of(const Content& content) {
  std::int64_t newest = 0;
  for (const Entry& entry : content.entries) newest = std::max(newest, entry.record.provenance.unix_seconds);
  return newest > 0 ? fmt::format("Newest record of {}.", date_of(newest)) : "";
}

}  // namespace

std::string page_of(const Content& content) {
  std::string out;
  draw_head(out);
  append(
      out,
      "<header><h1>Kiln report</h1><p>{}</p>\n<nav aria-label=\"Sections\"><a href=\"#summary\">Summary</a> <a href=\"#records\">Records</a> "
      "<a href=\"#length\">Length</a> <a href=\"#candidates\">Candidates</a> <a href=\"#roofline\">Roofline</a> <a href=\"#attention\">Stale and missing</a></nav></header>\n<main>\n",
      Text{newest_of(content)});
  const std::vector<Series> all = series_of(content);
  draw_summary(out, content);
  draw_records(out, content);
  draw_lengths(out, content, all);
  draw_candidates(out, content, all);
  draw_roofline(out, content);
  draw_attention(out, content);
  append(out, "</main>\n<script>{}</script>\n</body>\n</html>\n", page_script());
  return out;
}

}  // namespace kiln::cli::report
