// A chart with two logarithmic axes, as inline SVG. Marks are drawn by whoever has something to show.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cli/report/axis.hpp"

namespace kiln::cli::report {

struct AxisText {
  std::vector<Tick> ticks;
  std::function<std::string(double)> text;
  std::string_view label;  // "rows", "time"
  bool lines = true;       // across the chart, at the ticks
};

/// Coordinates are those of the viewBox; the page scales it.
struct Frame {
  double width = 380, height = 260;
  double left = 58, right = 14, top = 12, bottom = 40;
  [[nodiscard]] double inner_right() const noexcept { return width - right; }
  [[nodiscard]] double inner_bottom() const noexcept { return height - bottom; }
};

/// Opens <svg> and draws grid, numbers and labels. `about` is read out to those who do not see it.
void open_chart(std::string& out, const Frame& frame, const LogAxis& x, const AxisText& x_text, const LogAxis& y,
                const AxisText& y_text, std::string_view about);
void close_chart(std::string& out);

/// A mark that can be pointed at and reached by keyboard; its words show below the chart. `shape` is 0 to `shapes` - 1.
void draw_mark(std::string& out, double x, double y, double radius, int shape, std::string_view css_class,
               std::string_view words);
inline constexpr int shapes = 4;
/// The same shape in a legend, of a line of text's height.
std::string legend_mark(int shape, std::string_view css_class);

}  // namespace kiln::cli::report
