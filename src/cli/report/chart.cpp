#include "cli/report/chart.hpp"

#include "cli/report/html.hpp"

namespace kiln::cli::report {
namespace {

std::string shape_path(int shape, double x, double y, double r) {
  switch (shape % shapes) {
    case 1:
      return fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h{:.1f}z", x - r * .87, y - r * .87, 1.74 * r, 1.74 * r,
                         -1.74 * r);
    case 2: return fmt::format("M{:.1f} {:.1f}l{:.1f} {:.1f}h{:.1f}z", x, y - 1.15 * r, 1.1 * r, 1.95 * r, -2.2 * r);
    case 3:
      return fmt::format("M{:.1f} {:.1f}l{:.1f} {:.1f}l{:.1f} {:.1f}l{:.1f} {:.1f}z", x, y - 1.2 * r, 1.2 * r, 1.2 * r,
                         -1.2 * r, 1.2 * r, -1.2 * r, -1.2 * r);
    default:
      return fmt::format("M{:.1f} {:.1f}a{:.1f} {:.1f} 0 1 0 {:.1f} 0a{:.1f} {:.1f} 0 1 0 {:.1f} 0z", x - r, y, r, r,
                         2 * r, r, r, -2 * r);
  }
}

void draw_x(std::string& out, const Frame& frame, const LogAxis& axis, const AxisText& text) {
  for (const Tick& tick : text.ticks) {
    const double x = axis.at(tick.value);
    if (text.lines)
      append(out, "<path class=\"grid\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", x, frame.top, frame.inner_bottom());
    if (tick.named)
      append(out, "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x,
             frame.inner_bottom() + 14, Text{text.text(tick.value)});
  }
  append(out, "<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
         (frame.left + frame.inner_right()) / 2, frame.height - 8, Text{text.label});
}

void draw_y(std::string& out, const Frame& frame, const LogAxis& axis, const AxisText& text) {
  for (const Tick& tick : text.ticks) {
    const double y = axis.at(tick.value);
    append(out, "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", frame.left, y, frame.inner_right());
    if (tick.named)
      append(out, "<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", frame.left - 6,
             y + 3.5, Text{text.text(tick.value)});
  }
}

}  // namespace

void open_chart(std::string& out, const Frame& frame, const LogAxis& x, const AxisText& x_text, const LogAxis& y,
                const AxisText& y_text, std::string_view about) {
  append(out, "<svg class=\"chart\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"group\" aria-label=\"{}\">\n", frame.width,
         frame.height, Text{about});
  draw_x(out, frame, x, x_text);
  draw_y(out, frame, y, y_text);
  append(out, "<path class=\"axis\" d=\"M{:.1f} {:.1f}V{:.1f}H{:.1f}\"/>\n", frame.left, frame.top,
         frame.inner_bottom(), frame.inner_right());
}

void close_chart(std::string& out) { out += "</svg>\n"; }

void draw_mark(std::string& out, double x, double y, double radius, int shape, std::string_view css_class,
               std::string_view words) {
  append(out, "<path class=\"mark {}\" role=\"img\" tabindex=\"-1\" d=\"{}\"><title>{}</title></path>\n", css_class,
         shape_path(shape, x, y, radius), Text{words});
}

std::string legend_mark(int shape, std::string_view css_class) {
  return fmt::format(
      "<svg class=\"key\" viewBox=\"0 0 14 14\" aria-hidden=\"true\"><path class=\"{}\" d=\"{}\"/></svg>", css_class,
      shape_path(shape, 7, 7, 4.5));
}

}  // namespace kiln::cli::report
