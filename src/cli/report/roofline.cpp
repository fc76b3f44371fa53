// How far each record is from what its device could do: FLOP/s and bytes/s against arithmetic intensity.
#include <algorithm>
#include <cmath>
#include <set>

#include "cli/report/chart.hpp"
#include "cli/report/facts.hpp"
#include "cli/report/html.hpp"
#include "cli/report/roof.hpp"
#include "cli/report/sections.hpp"
#include "cli/units.hpp"

namespace kiln::cli::report {
namespace {

constexpr std::size_t most_marks = 1500, most_devices = 4;
constexpr int colours = 6;

struct Point {
  const Entry* entry;
  Reached reached;
  int op;  // by first appearance
};

struct Plane {
  std::vector<Point> points;
  std::vector<std::string> ops;  // by number
  std::set<std::string_view> dtypes;
  const Roof* roof = nullptr;
  std::string device;
};

std::string css_of(int op) { return fmt::format("op op{}", op % colours); }

Plane plane_of(const Content& content, const std::string& device_class) {
  Plane plane;
  plane.roof = roof_of(device_class);
  plane.device = content.devices.at(device_class);
  for (const Entry& entry : content.entries) {
    const Reached reached = reached_by(entry);
    if (entry.record.device_class != device_class || !(reached.intensity() > 0)) continue;
    const auto named = std::find(plane.ops.begin(), plane.ops.end(), entry.record.op);
    const auto op = static_cast<int>(named - plane.ops.begin());
    if (named == plane.ops.end()) plane.ops.push_back(entry.record.op);
    plane.points.push_back({&entry, reached, op});
    if (const auto dtype = dtype_of(entry); !dtype.empty()) plane.dtypes.insert(dtype);
  }
  return plane;
}

std::string words_of(const Point& point) {
  const double share = share_of_roof(*point.entry);
  return fmt::format(
      "{} {}: {} and {}{} · {}", clipped(point.entry->record.op, 60), clipped(point.entry->record.bucket),
      format_throughput(point.reached.flops_per_second), format_bandwidth(point.reached.bytes_per_second),
      share > 0 ? fmt::format(", {:.0f} % of the roof", 100 * share) : "", winner_of(point.entry->record));
}

void label(std::string& out, double x, double y, std::string_view text, const char* anchor) {
  append(out, "<text class=\"roof-label\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
         Text{text});
}

/// The distinct arithmetic peaks of the types that are there, with who they belong to.
std::map<double, std::string> peaks_of(const Plane& plane) {
  std::map<double, std::string> peaks;
  for (const std::string_view dtype : plane.dtypes)
    if (const double peak = peak_flops(*plane.roof, dtype); peak > 0)
      peaks[peak] += fmt::format("{}{}", peaks[peak].empty() ? "" : ", ", dtype);
  return peaks;
}

class Drawing {
 public:
  Drawing(std::string& out, const Plane& plane) : out_(out), plane_(plane) {
    for (const Point& point : plane.points) {
      intensities_.add(point.reached.intensity());
      flops_.add(point.reached.flops_per_second);
      bytes_.add(point.reached.bytes_per_second);
    }
    intensities_ = intensities_.widened(2);
    if (plane.roof == nullptr) return;
    for (const auto& [peak, types] : peaks_of(plane)) flops_.add(peak);
    flops_.add(intensities_.low * plane.roof->bytes_per_second);
    bytes_.add(plane.roof->bytes_per_second);
  }

  void flops() {
    const Frame frame = wide();
    const LogAxis x(intensities_, frame.left, frame.inner_right());
    const LogAxis y(flops_.widened(1.8), frame.inner_bottom(), frame.top);
    open(frame, x, y, "FLOP", "FLOP/s reached against arithmetic intensity");
    if (plane_.roof != nullptr) flops_roof(x, y);
    for (std::size_t i = 0; i < shown(); ++i)
      mark(plane_.points[i], x, y.at(plane_.points[i].reached.flops_per_second));
    close_chart(out_);
  }

  void bytes() {
    const Frame frame = wide();
    const LogAxis x(intensities_, frame.left, frame.inner_right());
    const LogAxis y(bytes_.widened(1.8), frame.inner_bottom(), frame.top);
    open(frame, x, y, "B", "Bytes/s reached against arithmetic intensity");
    if (plane_.roof != nullptr) bytes_roof(x, y);
    for (std::size_t i = 0; i < shown(); ++i)
      mark(plane_.points[i], x, y.at(plane_.points[i].reached.bytes_per_second));
    close_chart(out_);
  }

  [[nodiscard]] std::size_t shown() const { return std::min(plane_.points.size(), most_marks); }

 private:
  static Frame wide() {
    Frame frame;
    frame.width = 520;
    frame.height = 340;
    frame.left = 80;
    return frame;
  }

  void open(const Frame& frame, const LogAxis& x, const LogAxis& y, const char* unit, std::string_view about) {
    open_chart(out_, frame, x, {decimal_ticks(x.range()), short_number, "arithmetic intensity, FLOP a byte"}, y,
               {decimal_ticks(y.range()), [unit](double value) { return short_rate(value, unit); }, ""},
               fmt::format("{} on {}; the table of records has the numbers", about, plane_.device));
  }

  void mark(const Point& point, const LogAxis& x, double y) {
    draw_mark(out_, x.at(point.reached.intensity()), y, 3.4, point.op, css_of(point.op), words_of(point));
  }

  /// A slope up to each type's peak, then flat.
  void flops_roof(const LogAxis& x, const LogAxis& y) {
    const double memory = plane_.roof->bytes_per_second;
    const auto peaks = peaks_of(plane_);
    const double highest = peaks.empty() ? y.range().high : peaks.rbegin()->first;
    const double knee = std::min(highest / memory, x.range().high);
    append(out_, "<path class=\"roof\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>", x.at(x.range().low),
           y.at(x.range().low * memory), x.at(knee), y.at(knee * memory));
    const double middle = std::sqrt(x.range().low * knee);  // no mark lies above the slope
    label(out_, x.at(middle) - 8, y.at(middle * memory) - 2, short_rate(memory, "B") + " DRAM", "end");
    for (const auto& [peak, types] : peaks) {
      const double begin = std::max(peak / memory, x.range().low);
      if (begin > x.range().high) continue;
      append(out_, "<path class=\"roof\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", x.at(begin), y.at(peak), x.at(x.range().high));
      label(out_, x.at(x.range().high) - 4, y.at(peak) - 5, fmt::format("{} {}", short_rate(peak, "FLOP"), types),
            "end");
    }
  }

  /// Flat, then down where arithmetic limits.
  void bytes_roof(const LogAxis& x, const LogAxis& y) {
    const double memory = plane_.roof->bytes_per_second;
    const auto peaks = peaks_of(plane_);
    const double highest = peaks.empty() ? 0 : peaks.rbegin()->first;
    const double knee = highest > 0 ? std::min(highest / memory, x.range().high) : x.range().high;
    append(out_, "<path class=\"roof\" d=\"M{:.1f} {:.1f}H{:.1f}", x.at(x.range().low), y.at(memory), x.at(knee));
    const double end = highest > 0 ? std::min(highest / y.range().low, x.range().high) : 0;
    if (end > knee) append(out_, "L{:.1f} {:.1f}", x.at(end), y.at(highest / end));
    out_ += "\"/>";
    label(out_, x.at(x.range().low) + 6, y.at(memory) - 5, short_rate(memory, "B") + " DRAM", "start");
  }

  std::string& out_;
  const Plane& plane_;
  Interval intensities_, flops_, bytes_;
};

void draw_plane(std::string& out, const Plane& plane) {
  append(out, "<h3>{}</h3>\n<p class=\"legend\">", Text{clipped(plane.device, 80)});
  for (std::size_t i = 0; i < std::min<std::size_t>(plane.ops.size(), 12); ++i)
    append(out, "<span>{} {}</span>", legend_mark(static_cast<int>(i), css_of(static_cast<int>(i))),
           Text{clipped(plane.ops[i], 60)});
  out += "</p>\n";
  if (plane.roof == nullptr)
    out += "<p class=\"note\">This device's roof is not known to Kiln, so none is drawn.</p>\n";
  else
    append(out, "<p class=\"note\">DRAM: {}. Arithmetic: the data sheet's dense peak.</p>\n", plane.roof->bytes_from);
  Drawing drawing(out, plane);
  out += "<div class=\"figures two\"><figure class=\"figure\"><figcaption>FLOP/s reached</figcaption>\n";
  drawing.flops();
  out +=
      "<p class=\"readout\" aria-live=\"polite\"></p></figure>\n<figure class=\"figure\"><figcaption>Bytes/s reached</figcaption>\n";
  drawing.bytes();
  out += "<p class=\"readout\" aria-live=\"polite\"></p></figure></div>\n";
  say_left_out(out, plane.points.size() - drawing.shown(), "points are", "<code>--op</code> shows one op's");
}

}  // namespace

void draw_roofline(std::string& out, const Content& content) {
  out +=
      "<section id=\"roofline\" aria-labelledby=\"h-roofline\"><h2 id=\"h-roofline\">Roofline</h2>\n"
      "<p>What an op must move and compute, by its own cost model, over the time it took. The numbers stand in the <a href=\"#records\">table of records</a>.</p>\n";
  std::size_t drawn = 0, left_out = 0;
  for (const auto& [device_class, name] : content.devices) {
    const Plane plane = plane_of(content, device_class);
    if (plane.points.empty()) continue;
    if (drawn++ < most_devices)
      draw_plane(out, plane);
    else
      ++left_out;
  }
  if (drawn == 0) out += "<p class=\"note\">No record belongs to an op that says what it moves and computes.</p>\n";
  say_left_out(out, left_out, "device classes are", "<code>--device-class</code> asks for one");
  out += "</section>\n";
}

}  // namespace kiln::cli::report
