
// Functions that the sections draw with: elements, quantities, logarithmic axes, charts.
"use strict";

// A file's text becomes text nodes and values of attributes, never markup; controls become U+FFFD.
const plain = (text) => String(text).replace(/[\t\n]/g, " ").replace(/[\x00-\x1f\x7f]/g, "\ufffd");
const clip = (text, most) => {
  const characters = Array.from(text);
  return characters.length <= most ? text : characters.slice(0, most).join("") + "…";
};

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, plain(value));
  element.append(...children.map((child) => (child instanceof Node ? child : plain(child))));
  return element;
};
const svgNamespace = document.querySelector("svg").namespaceURI;
const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(svgNamespace, name), attributes, children);

// A paragraph of this page's own words, with `code` between backticks.
const note = (words) =>
  html("p", { class: "note" }, ...words.split("`").map((part, i) => (i % 2 === 1 ? html("code", {}, part) : part)));
const leftOut = (number, what, hint) => (number > 0 ? [note(`${count(number)} ${what} left out here: ${hint}`)] : []);

// Quantities as a person reads them; those that are not known are "–" or "-".
const count = (number) => number.toLocaleString("en-US");
const fourDigits = (value) => value.toFixed(value >= 999.5 ? 0 : value >= 99.95 ? 1 : value >= 9.995 ? 2 : 3);
const significant = (value, digits) => String(Number(value.toPrecision(digits)));

const time = (ns) => {
  if (!Number.isFinite(ns)) return "-";
  if (ns < 999.5) return `${ns.toFixed(0)} ns`;
  if (ns < 999.5e3) return `${fourDigits(ns / 1e3)} µs`;
  if (ns < 999.5e6) return `${fourDigits(ns / 1e6)} ms`;
  return `${fourDigits(ns / 1e9)} s`;
};
const bytes = (number) => {
  if (number < 1000) return `${number} B`;
  const units = ["kB", "MB", "GB", "TB", "PB"];
  let value = number / 1000, unit = 0;
  for (; value >= 999.5 && unit + 1 < units.length; ++unit) value /= 1000;
  return `${value.toFixed(value < 9.95 ? 1 : 0)} ${units[unit]}`;
};
const bandwidth = (rate) => {
  const gigabytes = rate / 1e9;
  return rate > 0 ? `${gigabytes.toFixed(gigabytes < 9.95 ? 2 : gigabytes < 99.5 ? 1 : 0)} GB/s` : "-";
};
const throughput = (rate) => {
  if (!(rate > 0)) return "-";
  return rate < 1e12 ? `${(rate / 1e9).toFixed(1)} GFLOP/s` : `${(rate / 1e12).toFixed(1)} TFLOP/s`;
};
const ratio = (value) => (value > 0 ? `${value.toFixed(2)}×` : "–");
const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 2 : 1)} %`;
const date = (seconds) => {
  const year9999 = 253402300799;
  return seconds > 0 && seconds <= year9999 ? new Date(seconds * 1000).toISOString().slice(0, 10) : "unknown";
};

// For axes: "5 µs"; "4096", "128Ki", "4Mi"; "10 TFLOP/s".
const shortTime = (ns) => {
  const [size, unit] = ns < 1e3 ? [1, "ns"] : ns < 1e6 ? [1e3, "µs"] : ns < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  return `${significant(ns / size, 3)} ${unit}`;
};
const shortLength = (length) => {
  const kibi = 1024, mebi = kibi * kibi, gibi = kibi * mebi;
  if (length < 64 * kibi) return length.toFixed(0);
  if (length < mebi) return `${significant(length / kibi, 6)}Ki`;
  return length < gibi ? `${significant(length / mebi, 6)}Mi` : `${significant(length / gibi, 4)}Gi`;
};
const shortRate = (rate, unit) => {
  for (const [size, prefix] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (rate >= size * 0.9995) return `${significant(rate / size, 4)} ${prefix}${unit}/s`;
  return `${significant(rate, 3)} ${unit}/s`;
};
const shortNumber = (value) => significant(value, 4);

// Returns the least and the greatest of the positive, finite values; undefined without any.
const rangeOf = (values) => {
  let range;
  for (const value of values)
    if (value > 0 && Number.isFinite(value))
      range = { low: Math.min(range?.low ?? value, value), high: Math.max(range?.high ?? value, value) };
  return range;
};
const widened = (range, factor) => ({ low: range.low / factor, high: range.high * factor });
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// Pixels `from` to `to` show `range`.
const logAxis = (range, from, to) => {
  const scale = (to - from) / (Math.log2(range.high) - Math.log2(range.low));
  return { range, at: (value) => from + (Math.log2(value) - Math.log2(range.low)) * scale };
};

// Powers of ten, with 2 and 5 between them where they fit; never more than about twenty.
const decimalTicks = ({ low, high }) => {
  const decades = Math.log10(high) - Math.log10(low);
  const stride = Math.max(1, Math.ceil(decades / 6));
  const ticks = [];
  for (let exponent = Math.floor(Math.log10(low)); exponent <= Math.ceil(Math.log10(high)); exponent += stride)
    for (const digit of stride > 1 || decades > 4 ? [1] : [1, 2, 5]) {
      const value = Number(`${digit}e${exponent}`);
      if (value >= low && value <= high) ticks.push({ value, named: digit === 1 || decades < 1.7 });
    }
  return ticks;
};
// Powers of two, evenly spaced, at most `most`.
const binaryTicks = ({ low, high }, most) => {
  const first = Math.ceil(Math.log2(low) - 1e-9), last = Math.floor(Math.log2(high) + 1e-9);
  const stride = Math.max(1, Math.trunc((last - first + most) / most));
  const ticks = [];
  for (let exponent = first; exponent <= last; exponent += stride) ticks.push({ value: 2 ** exponent, named: true });
  return ticks;
};

const shapes = 4;
const shapePath = (shape, x, y, r) => {
  const by = (...numbers) => numbers.map((number) => number.toFixed(1)).join(" ");
  switch (shape % shapes) {
    case 1: return `M${by(x - r * 0.87, y - r * 0.87)}h${by(1.74 * r)}v${by(1.74 * r)}h${by(-1.74 * r)}z`;
    case 2: return `M${by(x, y - 1.15 * r)}l${by(1.1 * r, 1.95 * r)}h${by(-2.2 * r)}z`;
    case 3: return `M${by(x, y - 1.2 * r)}l${by(1.2 * r, 1.2 * r)}l${by(-1.2 * r, 1.2 * r)}l${by(-1.2 * r, -1.2 * r)}z`;
    default: return `M${by(x - r, y)}a${by(r, r)} 0 1 0 ${by(2 * r)} 0a${by(r, r)} 0 1 0 ${by(-2 * r)} 0z`;
  }
};
const legendMark = (shape, kind) =>
  svg("svg", { class: "key", viewBox: "0 0 14 14", "aria-hidden": "true" },
    svg("path", { class: kind, d: shapePath(shape, 7, 7, 4.5) }));

// A path or a text of a chart. Coordinates are those of the viewBox, to a tenth.
const path = (kind, ...parts) =>
  svg("path", { class: kind, d: parts.map((part) => (typeof part === "number" ? part.toFixed(1) : part)).join("") });
const label = (kind, x, y, anchor, text) =>
  svg("text", { class: kind, x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor }, text);
// A mark that can be pointed at and reached by keyboard; its words show below the chart.
const mark = (x, y, radius, shape, kind, words) =>
  svg("path", { class: `mark ${kind}`, role: "img", tabindex: "-1", d: shapePath(shape, x, y, radius) },
    svg("title", {}, words));

const frameOf = (width, height, left) =>
  ({ width, height, left, right: width - 14, top: 12, bottom: height - 40 });
// Draws grid, numbers and labels of two axes, each {range, at, ticks, text, label, lines}. Screen readers read `about`.
const chart = (frame, x, y, about) => {
  const { width, height, left, right, top, bottom } = frame;
  const drawn = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": about });
  for (const tick of x.ticks) {
    if (x.lines) drawn.append(path("grid", "M", x.at(tick.value), " ", top, "V", bottom));
    if (tick.named) drawn.append(label("tick", x.at(tick.value), bottom + 14, "middle", x.text(tick.value)));
  }
  drawn.append(label("label", (left + right) / 2, height - 8, "middle", x.label));
  for (const tick of y.ticks) {
    drawn.append(path("grid", "M", left, " ", y.at(tick.value), "H", right));
    if (tick.named) drawn.append(label("tick", left - 6, y.at(tick.value) + 3.5, "end", y.text(tick.value)));
  }
  drawn.append(path("axis", "M", left, " ", top, "V", bottom, "H", right));
  return drawn;
};
const figure = (caption, drawn, ...rest) =>
  html("figure", { class: "figure" }, html("figcaption", {}, caption), drawn,
    html("p", { class: "readout", "aria-live": "polite" }), ...rest);
