// What asks for something to be done: stale records, and buckets that are launched without one.
#include <algorithm>
#include <array>

#include "cli/report/facts.hpp"
#include "cli/report/html.hpp"
#include "cli/report/sections.hpp"
#include "cli/units.hpp"

namespace kiln::cli::report {
namespace {

constexpr std::size_t most_listed = 200;

void draw_stale(std::string& out, const Content& content) {
  std::vector<const Entry*> stale;
  for (const Entry& entry : content.entries)
    if (entry.standing != engine::Standing::present) stale.push_back(&entry);
  out += "<h3>Stale</h3>\n";
  if (stale.empty()) {
    out += "<p class=\"note\">Every record was tuned from the present sources.</p>\n";
    return;
  }
  out +=
      "<p>Tuned from other sources than the present ones, or for an op that is not loaded here. They serve as before; <code>kiln tune --stale</code> tunes them again.</p>\n";
  open_table(out, "Stale records", std::array<std::string, 5>{"Op", "Bucket", "Why", "Tuned", "File"});
  for (std::size_t i = 0; i < std::min(stale.size(), most_listed); ++i) {
    const Entry& entry = *stale[i];
    append(out, "<tr><th scope=\"row\">{}<td>{}<td>{}<td class=\"nowrap\">{}, kiln {}<td class=\"path\">{}\n",
           Text{clipped(entry.record.op, 60)}, Text{clipped(entry.record.bucket)},
           entry.standing == engine::Standing::unknown ? "no such op, or device class, here"
           : entry.op == nullptr                       ? "the op has no such bucket any more"
                                                       : "the sources have changed",
           date_of(entry.record.provenance.unix_seconds), Text{clipped(entry.record.provenance.kiln_version, 20)},
           Text{clipped(content.sources[entry.source].name)});
  }
  close_table(out);
  say_left_out(out, stale.size() - std::min(stale.size(), most_listed), "records are",
               "<code>--op</code> narrows the report");
}

void draw_missing(std::string& out, const Content& content) {
  out += "<h3>Missing</h3>\n";
  if (content.counted_problems == 0) {
    out += "<p class=\"note\">No file holds a histogram of launches, so what is missing is not known.</p>\n";
    return;
  }
  if (content.missing.empty())
    append(out, "<p class=\"note\">Each of the {} problems that were launched has a record.</p>\n",
           format_count(content.counted_problems));
  else {
    out +=
        "<p>Launched, and without a record; the most launched first. <code>kiln tune</code> with these sizes makes them hits.</p>\n";
    open_table(out, "Missing buckets", std::array<std::string, 4>{"Op", "Bucket", "> Launches, about", "> Real sizes"});
  }
  for (std::size_t i = 0; i < std::min(content.missing.size(), most_listed); ++i) {
    const Missing& each = content.missing[i];
    append(out, "<tr><th scope=\"row\">{}<td>{}<td class=\"r\">{}<td class=\"r\">{}\n", Text{clipped(each.op, 60)},
           Text{clipped(each.bucket)}, format_count(each.launches), format_count(each.problems));
  }
  if (!content.missing.empty()) close_table(out);
  say_left_out(out, content.missing.size() - std::min(content.missing.size(), most_listed), "buckets are",
               "the least launched ones");
  if (content.unreadable_problems > 0)
    append(out, "<p class=\"note\">{} counted problems belong to no op that is loaded here.</p>\n",
           format_count(content.unreadable_problems));
}

}  // namespace

void draw_attention(std::string& out, const Content& content) {
  out += "<section id=\"attention\" aria-labelledby=\"h-attention\"><h2 id=\"h-attention\">Stale and missing</h2>\n";
  draw_stale(out, content);
  draw_missing(out, content);
  out += "</section>\n";
}

}  // namespace kiln::cli::report
