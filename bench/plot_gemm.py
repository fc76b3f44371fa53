"""cuBLASLt's best time over Kiln's, a mark a shape over the rows of x, as SVG that reads on light and dark pages."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 56, 28, 58, 48
ROWS = [4**power for power in range(8)]  # 1 to 16384
RATIOS = [0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 6]
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #5f5a54 } .title { font-size: 14px; fill: #1d1b19 }
  .grid { stroke: #d9d3cb } .parity { stroke: #1d1b19; stroke-width: 1.4 }
  .mark { fill: #2563a8; fill-opacity: .75 } .own { fill: none; stroke: #c2410c; stroke-width: 1.4 } .spread { stroke: #2563a8; stroke-opacity: .5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #a8a099 } .title { fill: #ece8e3 } .grid { stroke: #37322d } .parity { stroke: #ece8e3 }
    .mark { fill: #74aaf0 } .own { stroke: #fb8b4b } .spread { stroke: #74aaf0 }
  }"""


class Frame:
    """Both axes are logarithmic; the vertical one takes the ticks next to what it shows."""

    def __init__(self, ratios):
        low, high = min(ratios, default=1), max(ratios, default=1)
        self.low = max((tick for tick in RATIOS if tick <= min(low, 0.9)), default=low)
        self.high = min((tick for tick in RATIOS if tick >= max(high, 1.1)), default=high)
        self.ticks = [tick for tick in RATIOS if self.low <= tick <= self.high]

    def x(self, rows):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(rows) / math.log(ROWS[-1])

    def y(self, ratio):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(ratio / self.low) / math.log(self.high / self.low)


def axes(frame):
    for rows in ROWS:
        yield f'<line class="grid" x1="{frame.x(rows):.1f}" x2="{frame.x(rows):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{frame.x(rows):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{rows}</text>'
    for ratio in frame.ticks:
        kind = "parity" if ratio == 1 else "grid"
        yield f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{frame.y(ratio):.1f}" y2="{frame.y(ratio):.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{frame.y(ratio) + 4:.1f}" text-anchor="end">{ratio:g}</text>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">rows of x (tokens)</text>'


def mark(frame, rows, row, words):
    x, ratio = frame.x(rows), row["best_over_kiln"]
    low, high = (frame.y(min(max(row[f"best_over_kiln_{end}"], frame.low), frame.high)) for end in ("low", "high"))
    yield f'<line class="spread" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
    yield f'<circle class="mark" cx="{x:.1f}" cy="{frame.y(ratio):.1f}" r="4"><title>{escape(words)}: {ratio:.2f}, {row["implementation"]}</title></circle>'
    if "own_implementation" in row:
        own = row["best_over_own"]
        yield (f'<circle class="own" cx="{x:.1f}" cy="{frame.y(own):.1f}" r="4"><title>{escape(words)}: {own:.2f}, own kernels: '
               f'{row["own_implementation"]}</title></circle>')


def chart(marks, dtype):
    """`marks`: rows of x, the line of bench_gemm, words for people."""
    ratios = [row[name] for _, row, _ in marks for name in ("best_over_kiln", "best_over_own") if name in row]
    frame, own = Frame(ratios), any("own_implementation" in row for _, row, _ in marks)
    about = f"{dtype}: cuBLASLt's best time over Kiln's, a mark a shape; over 1, Kiln is faster"
    hollow = "hollow: Kiln's own kernels, where Kiln's plan is the library" if own else ""
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(about)}">', f"<style>{STYLE}\n</style>",
             f'<text class="title" x="{LEFT}" y="22">{escape(about)}</text>', f'<text x="{LEFT}" y="42">{escape(hollow)}</text>', *axes(frame)]
    for each in marks:
        lines += mark(frame, *each)
    return "\n".join(lines) + "\n</svg>\n"
