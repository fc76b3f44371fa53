// Every record as a row; the script sorts and filters, and without it the rows stand in the order of their keys.
#include <set>

#include "cli/report/facts.hpp"
#include "cli/report/html.hpp"
#include "cli/report/roof.hpp"
#include "cli/report/sections.hpp"
#include "cli/units.hpp"

namespace kiln::cli::report {
namespace {

constexpr std::size_t most_rows = 2000;

void draw_matrix(std::string& out, const Content& content) {
  constexpr std::size_t most_ops = 100, most_devices = 8;
  std::map<std::string, std::map<std::string, std::int64_t>> counts;
  for (const Entry& entry : content.entries) ++counts[entry.record.op][entry.record.device_class];
  if (counts.size() < 2 && content.devices.size() < 2) return;
  std::vector<std::string> headings{"Op"};
  for (const auto& [device_class, name] : content.devices)
    if (headings.size() <= most_devices) headings.push_back("> " + clipped(name, 40));
  open_table(out, "Records by op and device", headings, "class=\"fit\"", "fit");
  std::size_t ops = 0;
  for (const auto& [op, by_device] : counts) {
    if (ops++ >= most_ops) break;
    append(out, "<tr><th scope=\"row\">{}", Text{clipped(op, 60)});
    std::size_t devices = 0;
    for (const auto& [device_class, name] : content.devices) {
      if (devices++ >= most_devices) break;
      const auto found = by_device.find(device_class);
      append(out, "<td class=\"r\">{}", found == by_device.end() ? "–" : format_count(found->second));
    }
    out += '\n';
  }
  close_table(out);
  say_left_out(out, counts.size() - std::min(counts.size(), most_ops), "ops are", "<code>--op</code> asks for one");
  say_left_out(out, content.devices.size() - std::min(content.devices.size(), most_devices), "device classes are",
               "<code>--device-class</code> asks for one");
}

void draw_choice(std::string& out, std::string_view label, std::size_t column, const std::set<std::string>& values) {
  if (values.size() < 2 || values.size() > 60) return;
  append(out, "<label>{} <select data-column=\"{}\"><option value=\"\">all</option>", label, column);
  for (const std::string& value : values) append(out, "<option>{}</option>", Text{clipped(value, 60)});
  out += "</select></label>\n";
}

/// Shown by the script: they do nothing without it.
void draw_controls(std::string& out, const Content& content) {
  std::set<std::string> ops, devices, states;
  for (const Entry& entry : content.entries) {
    ops.insert(entry.record.op);
    devices.insert(content.devices.at(entry.record.device_class));
    states.insert(std::string(to_string(entry.standing)));
  }
  out +=
      "<form class=\"controls\" data-for=\"records-table\" hidden><label>Find <input type=\"search\" placeholder=\"gemm m=16 mma\" autocomplete=\"off\"></label>\n";
  draw_choice(out, "Op", 0, ops);
  draw_choice(out, "Device", 8, devices);
  draw_choice(out, "State", 9, states);
  out += "<output aria-live=\"polite\"></output></form>\n";
}

void number_cell(std::string& out, double value, const std::string& text, std::string_view css_class = "r") {
  append(out, "<td class=\"{}\" data-v=\"{:.6g}\">{}", css_class, value, text);
}

void draw_row(std::string& out, const Entry& entry, const Content& content) {
  const store::Record& record = entry.record;
  append(out, "<tr><th scope=\"row\">{}<td class=\"bucket\">{}{}", Text{clipped(record.op, 60)},
         Text{clipped(record.bucket)}, record.regime == "cold" ? "" : " <small>warm L2</small>");
  const double cost_ns = record.at_edge().cost_ns;
  number_cell(out, cost_ns, time_of(cost_ns));
  const double gain = gain_of(record);
  number_cell(out, gain, ratio_of(gain));
  const Reached reached = reached_by(entry);
  number_cell(out, reached.bytes_per_second, format_bandwidth(reached.bytes_per_second));
  number_cell(out, reached.flops_per_second, format_throughput(reached.flops_per_second));
  const double share = share_of_roof(entry);
  number_cell(out, share, share > 0 ? fmt::format("{:.0f} %", 100 * share) : "–");
  append(out, "<td class=\"config\">{}", Text{winner_of(record)});
  append(out, "<td title=\"{}\">{}", Text{clipped(record.device_class)},
         Text{clipped(content.devices.at(record.device_class), 60)});
  append(out, "<td{}>{}", entry.standing == engine::Standing::present ? "" : " class=\"bad\"",
         to_string(entry.standing));
  append(out, "<td class=\"nowrap\" data-v=\"{}\">{}\n", record.provenance.unix_seconds,
         date_of(record.provenance.unix_seconds));
}

}  // namespace

void draw_records(std::string& out, const Content& content) {
  out += "<section id=\"records\" aria-labelledby=\"h-records\"><h2 id=\"h-records\">Records by op and device</h2>\n";
  if (content.entries.empty()) {
    out +=
        "<p class=\"note\">There is no record to show. <code>kiln tune</code> makes one, <code>--base FILE</code> adds a file that has some.</p></section>\n";
    return;
  }
  draw_matrix(out, content);
  draw_controls(out, content);
  static const std::vector<std::string> headings = {"Op",          "Bucket",       "> Time",    "> Gain",
                                                    "> Bandwidth", "> Throughput", "> Of roof", "Winner",
                                                    "Device",      "State",        "Tuned"};
  open_table(out, "Records", headings, "id=\"records-table\" class=\"sortable\"", "tall");
  const std::size_t shown = std::min(content.entries.size(), most_rows);
  for (std::size_t i = 0; i < shown; ++i) draw_row(out, content.entries[i], content);
  close_table(out);
  say_left_out(
      out, content.entries.size() - shown, "records are",
      "<code>--op</code> and <code>--device-class</code> narrow the report, <code>kiln cache ls</code> lists them all");
  out +=
      "<p class=\"note\">Time: device time at the bucket's upper edge. Gain: over the op's default. Of roof: the larger share of the "
      "device's memory and arithmetic rates, where they are known.</p>\n</section>\n";
}

}  // namespace kiln::cli::report
