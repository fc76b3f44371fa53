
// Fills page.html from the facts, whose form facts.hpp gives, and removes each element whose data-if does not hold.
const facts = JSON.parse(document.getElementById("facts").textContent);
const standings = { present: "current", stale: "stale", unknown: "unknown op" };
const find = (selector) => document.querySelector(selector);
const section = (id) => document.getElementById(id);
const most = (list, limit) => list.slice(0, limit);
const groupBy = (list, keyOf) => {
  const groups = new Map();
  for (const each of list) {
    const key = keyOf(each);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(each);
  }
  return groups;
};
const compareText = new Intl.Collator("en", { numeric: true }).compare;

// Rows of a table: a heading, then cells. A cell is a text, an element, or [attributes, ...children].
const cell = (name, attributes, content) => {
  if (!Array.isArray(content)) return html(name, attributes, content);
  const [own, ...children] = content;
  return html(name, { ...attributes, ...own }, ...children);
};
const row = (heading, ...cells) =>
  html("tr", {}, cell("th", { scope: "row" }, heading), ...cells.map((each) => cell("td", {}, each)));
const right = (text) => [{ class: "r" }, text];
const sorted = (value, text, kind = "r") => [{ class: kind, "data-v": value }, text];
const fillTable = (selector, rows) => find(`${selector} tbody`).append(...rows);
const head = (...cells) => html("thead", {}, html("tr", {}, ...cells.map((each) => cell("th", { scope: "col" }, each))));
const framed = (about, kind, table) =>
  html("div", { class: `scroll ${kind}`, tabindex: "0", role: "region", "aria-label": about }, table);

// Adds to a record what several sections show: its device and file, gain, rates and share of the roof.
const complete = (record) => {
  const absurd = 1e21;  // a rate that no device has
  const { bytes_per_second: bytes, flops_per_second: flops, cost_ns: cost, baseline_ns: baseline } = record;
  const known = [bytes, flops].every((rate) => Number.isFinite(rate) && rate <= absurd);
  record.device = facts.devices[record.device];
  record.source = facts.sources[record.source];
  record.gain = baseline > 0 && cost > 0 ? baseline / cost : 0;
  record.bytes = known ? Math.max(bytes, 0) : 0;
  record.flops = known ? Math.max(flops, 0) : 0;
  record.intensity = record.bytes > 0 ? record.flops / record.bytes : 0;
  const roof = record.device.roof;
  const peak = roof?.flops_per_second[record.dtype];
  // From a warm L2 not all bytes come from DRAM.
  record.share = !roof || record.regime !== "cold" ? 0
    : Math.max(record.bytes / roof.bytes_per_second, peak > 0 ? record.flops / peak : 0);
  record.winner = record.config + (record.other_configs > 0 ? ` and ${record.other_configs} more` : "");
  record.tunedOn = date(record.tuned);
};
facts.records.forEach(complete);

const drawTiles = () => {
  const ops = new Set(facts.records.map((record) => record.op)).size;
  const gains = facts.records.filter((record) => record.gain > 0);
  const mean = Math.exp(gains.reduce((sum, record) => sum + Math.log(record.gain), 0) / gains.length);
  const kept = gains.filter((record) => record.baseline_ns <= record.cost_ns).length;
  const stale = facts.records.filter((record) => record.standing === "stale").length;
  const tried = facts.records.flatMap((record) => Object.values(record.trials?.verdicts ?? {}))
    .reduce((sum, number) => sum + number, 0);
  const counted = facts.problems.counted > 0, missing = facts.missing.found;
  const tile = (number, what, more = "", warns = false) => find(".tiles").append(
    html("div", { class: warns ? "tile warn" : "tile" }, html("dt", {}, what),
      html("dd", {}, html("b", {}, number), html("small", {}, more))));
  tile(count(facts.records_found), "records", facts.records_hidden > 0
    ? `${count(facts.records_hidden)} more behind an earlier file's` : `of ${ops} ${ops === 1 ? "op" : "ops"}`);
  if (facts.devices.length === 1) tile("1", "device class", clip(facts.devices[0].name, 40));
  else tile(count(facts.devices.length), "device classes");
  if (gains.length > 0) tile(ratio(mean), "over the default", `geometric mean; the default stays in ${count(kept)}`);
  if (tried > 0) tile(count(tried), "candidates tried");
  tile(count(stale), "stale records", stale > 0 ? "tuned from other sources" : "", stale > 0);
  tile(counted ? count(missing) : "–", "buckets missing",
    counted ? "launched, without a record" : "no launches were counted", missing > 0);
  find(".tiles").after(...leftOut(facts.records_left_out, "records are",
    "`--op` and `--device-class` narrow the report"));
};

const drawUses = () => {
  const hits = { hot: "a plan in memory", overlay: "the user's file", base: "a shipped file" };
  const bar = (share, kind) =>
    svg("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: "track", width: "100", height: "8" }),
      svg("rect", { class: kind, width: (100 * share).toFixed(2), height: "8" }));
  const draw = (uses, kindOf) => fillTable("#uses", uses.most.map(([name, uses_of]) => {
    const share = uses_of / Math.max(uses.total, 1);
    const [kind, meaning] = kindOf(name);
    return row(clip(name, 40), meaning, right(count(uses_of)), right(percent(share)), bar(share, kind));
  }));
  draw(facts.launches, (name) => (Object.hasOwn(hits, name) ? ["good", `hit: ${hits[name]}`]
    : ["poor", "fallback: no record of the bucket"]));
  draw(facts.misses, () => ["poor", "a look-up's miss"]);
  draw(facts.shared, (name) => [name === "hit" ? "good" : "poor", "asked of the shared store"]);
};

const drawFiles = () => fillTable("#files", facts.sources.map((source) => row([{ class: "path" }, source.name],
  source.overlay ? "overlay" : "base", ...(source.refused !== undefined
    ? [[{ colspan: "4", class: "bad" }, `refused: ${source.refused}`]]
    : [source.records, source.candidates, source.cubins].map((number) => right(count(number)))
      .concat([right(bytes(source.bytes))])))));

const drawMatrix = () => {
  const mostOps = 100, mostDevices = 8;
  const byOp = groupBy(facts.records, (record) => record.op);
  if (byOp.size < 2 && facts.devices.length < 2) return;
  const devices = most(facts.devices, mostDevices);
  const rows = most([...byOp].sort(([a], [b]) => (a < b ? -1 : 1)), mostOps).map(([op, records]) =>
    row(clip(op, 60), ...devices.map((device) => {
      const number = records.filter((record) => record.device === device).length;
      return right(number > 0 ? count(number) : "–");
    })));
  const table = html("table", { class: "fit" }, head("Op", ...devices.map((device) => right(clip(device.name, 40)))),
    html("tbody", {}, ...rows));
  find("form.controls").before(framed("Records by op and device", "fit", table),
    ...leftOut(byOp.size - rows.length, "ops are", "`--op` asks for one"),
    ...leftOut(facts.devices.length - devices.length, "device classes are", "`--device-class` asks for one"));
};

// Words that the buckets of all these lists have in common; of a single list, none.
const sharedOf = (lists) => new Set(lists.length > 1
  ? lists[0].filter((word) => lists.every((words) => words.includes(word))) : []);

const drawRecords = () => {
  const mostRows = 2000;
  if (facts.records.length === 0) return;
  drawMatrix();
  const choose = (name, column, textOf) => {
    const values = [...new Set(facts.records.map((record) => clip(textOf(record), 60)))].sort();
    if (values.length < 2 || values.length > 60) return;
    find("form.controls output").before(html("label", {}, `${name} `, html("select", { "data-column": column },
      html("option", { value: "" }, "all"), ...values.map((value) => html("option", {}, value)))), "\n");
  };
  choose("Op", 0, (record) => record.op);
  choose("Device", 8, (record) => record.device.name);
  choose("State", 9, (record) => standings[record.standing]);
  const sharedWords = new Map([...groupBy(facts.records, (record) => record.op)]
    .map(([op, records]) => [op, sharedOf(records.map((record) => record.bucket.split(" ")))]));
  // What the buckets of an op have in common is in a softer colour.
  const bucketOf = ({ op, bucket }) => bucket.split(" ").flatMap((word, i) => [i > 0 ? " " : "",
    sharedWords.get(op).has(word) ? html("span", { class: "quiet" }, word) : word]);
  const rowOf = (record) => row(clip(record.op, 60),
    [{ class: "bucket" }, ...bucketOf(record), ...(record.regime === "cold" ? [] : [" ", html("small", {}, "warm L2")])],
    sorted(record.cost_ns, time(record.cost_ns)), sorted(record.gain, ratio(record.gain)),
    sorted(record.bytes, bandwidth(record.bytes)), sorted(record.flops, throughput(record.flops)),
    sorted(record.share, record.share > 0 ? `${(100 * record.share).toFixed(0)} %` : "–"),
    [{ class: "config" }, record.winner], [{ title: record.device.class }, clip(record.device.name, 60)],
    record.standing === "present" ? standings.present : [{ class: "bad" }, standings[record.standing]],
    sorted(record.tuned, record.tunedOn, "nowrap"));
  fillTable("#records-table", most(facts.records, mostRows).map(rowOf));
  find("#records-table").parentNode.after(...leftOut(facts.records.length - mostRows, "records are",
    "`--op` and `--device-class` narrow the report, `kiln cache ls` lists them all"));
};

// Returns an op's series, through which curves are drawn: the records of one device and regime that differ in one length alone. An op's
// length is the axis that takes the most values, among the axes that vary inside a bucket if there are any. An axis may be exact for some
// types and choices alone, so the records' buckets tell.
const isExact = (records, axis) => records.every((record) => record.lows[axis] === record.axes[axis]);
const seriesOf = (op) => {
  const records = facts.records.filter((record) => record.axes && record.op === op.name && record.cost_ns > 0);
  let axis = 0, best = -1;
  op.axes.forEach((_, i) => {
    const score = (isExact(records, i) ? 0 : facts.records.length) + new Set(records.map((record) => record.axes[i])).size;
    if (score > best) [axis, best] = [i, score];
  });
  if (op.axes.length === 0) return [];
  const { name } = op.axes[axis];
  const fixedOf = (record) => record.bucket.split(" ").filter((word) => !word.startsWith(`${name}=`)).join(" ");
  const groups = groupBy(records, (record) =>
    JSON.stringify([facts.devices.indexOf(record.device), record.regime, fixedOf(record)]));
  const words = [...groups.keys()].map((key) => JSON.parse(key)[2].split(" "));
  const shared = sharedOf(words);
  return [...groups].map(([key, points]) => {
    const [device, regime, fixed] = JSON.parse(key);
    points.sort((a, b) => a.axes[axis] - b.axes[axis]);
    // Times along the axis, the other axes at their upper edges.
    const times = points.flatMap((point) => point.times
      .filter((each) => each.axes.every((size, i) => i === axis || size === point.axes[i]))
      .map((each) => ({ length: each.axes[axis], config: point.config, ...each })));
    times.sort((a, b) => a.length - b.length);
    const own = fixed.split(" ").filter((word) => !shared.has(word)).join(" ");
    const title = (own || fixed) + (facts.devices.length > 1 ? ` · ${facts.devices[device].name}` : "") +
      (regime === "hot" ? " · warm L2" : "");
    return { op, axis, name, exact: isExact(points, axis), device, regime, fixed, shared: [...shared].join(" "), points, times, title: clip(title, 160) };
  }).sort((a, b) => a.device - b.device || compareText(a.regime, b.regime) || compareText(a.fixed, b.fixed));
};
const allSeries = facts.ops.flatMap(seriesOf);

const drawCurves = (series, scales) => {
  const mostPoints = 200, mostEdges = 64;
  const frame = frameOf(380, 260, 58);
  const { name, axis, exact, points } = series;
  const x = logAxis(widened(scales.lengths, 1.35), frame.left, frame.right);
  const y = logAxis(widened(scales.times, 1.25), frame.bottom, frame.top);
  const times = most(series.times, mostPoints);
  const unread = points.reduce((sum, record) => sum + (record.times_left_out ?? 0), 0);
  const drawn = chart(frame,
    { ...x, ticks: binaryTicks(scales.lengths, 8), text: shortLength, label: name, lines: exact },
    { ...y, ticks: decimalTicks(y.range), text: shortTime },
    `Time against ${name} of ${series.op.name} ${series.title}; the table below has the numbers`);
  const edges = new Set(exact ? [] : points.flatMap((point) => [point.lows[axis] - 1, point.axes[axis]]));
  const shown = most([...edges].filter((edge) => edge > 0 && edge >= x.range.low), mostEdges);
  drawn.append(path("edge", ...shown.flatMap((edge) => ["M", x.at(edge), " ", frame.top, "V", frame.bottom])));
  for (const [kind, costOf] of [["baseline", (each) => each.baseline_ns], ["winner", (each) => each.cost_ns]])
    drawn.append(path(`curve ${kind}`, ...times.filter((each) => costOf(each) > 0)
      .flatMap((each, i) => [i === 0 ? "M" : "L", x.at(each.length), " ", y.at(costOf(each))])));
  for (const each of times) {
    const { length, cost_ns: cost, baseline_ns: baseline, config } = each;
    if (baseline > 0) drawn.append(path("dot baseline", "M", x.at(length), " ", y.at(baseline), "h0"));
    const compared = baseline > 0 ? `, default ${time(baseline)} (${ratio(baseline / cost)})` : "";
    drawn.append(mark(x.at(length), y.at(cost), 3.6, 0, "winner",
      `${name}=${length}: ${time(cost)}${compared} · ${config}`));
  }
  const table = html("table", { class: "small" }, head(right(name), right("Time"), right("Default"), "Config"),
    html("tbody", {}, ...times.map((each) => row(right(each.length), right(time(each.cost_ns)),
      right(each.baseline_ns > 0 ? time(each.baseline_ns) : "–"), [{ class: "config" }, each.config]))));
  return figure(series.title, drawn, html("details", {}, html("summary", {}, "Table"), table),
    ...leftOut(series.times.length - times.length + unread, "points are", "the longest ones"));
};

// Charts of one op share their scales. Where an op has too many, those with the most points are drawn.
const drawLengths = () => {
  const mostChartsOfOp = 12, mostCharts = 48;
  const curves = allSeries.filter(({ axis, points }) => points[0].axes[axis] < points[points.length - 1].axes[axis]);
  let drawn = 0;
  for (const [op, all] of groupBy(curves, (series) => series.op)) {
    const byPoints = [...all].sort((a, b) => b.points.length - a.points.length);
    const chosen = new Set(most(byPoints, Math.min(mostChartsOfOp, mostCharts - drawn)));
    if (chosen.size === 0) continue;
    drawn += chosen.size;
    const times = [...chosen].flatMap((series) => series.times);
    const scales = {
      lengths: rangeOf(times.map((each) => each.length)),
      times: rangeOf(times.flatMap((each) => [each.cost_ns, each.baseline_ns])),
    };
    section("length").append(html("h3", {}, `${op.name} `, html("small", {}, op.summary)),
      ...(all[0].shared ? [note(`All charts: ${clip(all[0].shared, 160)}`)] : []), html("div", { class: "figures" },
      ...all.filter((series) => chosen.has(series)).map((series) => drawCurves(series, scales))));
  }
  section("length").append(...leftOut(curves.length - drawn, "charts are",
    "those with the fewest points; `--op` shows one op's"));
  return drawn;
};

const strip = { width: 440, margin: 10, height: 26, bins: 88 };
// Draws a histogram of the candidates' times on a logarithmic axis of multiples of the winner's time.
const drawStrip = (record, axis) => {
  const { width, margin, height, bins } = strip;
  const { cost_ns: winner, baseline_ns: baseline, trials: { costs_ns: costs } } = record;
  const place = (ns) => axis.at(clamp(ns / winner, axis.range.low, axis.range.high));
  const step = (width - 2 * margin) / bins;
  const counts = new Array(bins).fill(0);
  for (const ns of costs) ++counts[clamp(Math.trunc((place(ns) - margin) / step), 0, bins - 1)];
  const highest = Math.max(...counts);
  const drawn = svg("svg", { class: "strip", viewBox: `0 0 ${width} ${height}`, role: "img" },
    svg("title", {}, `${costs.length} candidates timed, ${time(costs[0])} to ${time(costs[costs.length - 1])}; the winner ${
      time(winner)}, the default ${baseline > 0 ? time(baseline) : "not known"}`),
    path("axis", "M", margin, " ", height - 0.5, "H", width - margin));
  const bars = counts.flatMap((number, i) => {
    const bar = Math.max(3, (height - 4) * number / highest);
    return number > 0 ? ["M", margin + i * step, " ", height - 1, "v", -bar, "h", step - 0.8, "v", bar, "z"] : [];
  });
  if (bars.length > 0) drawn.append(path("bars", ...bars));
  if (baseline > 0) drawn.append(path("at baseline", "M", place(baseline), " 0V", height));
  drawn.append(path("at winner", "M", axis.at(1), " 0V", height));
  return drawn;
};

const drawStrips = (series, tried, shown, open) => {
  const mostTimes = 100;  // slower candidates gather at the right end
  const { width, margin } = strip;
  const range = { low: 0.97, high: 2 };
  for (const { cost_ns: winner, trials: { costs_ns: costs } } of tried) {
    if (costs.length === 0) continue;
    range.low = clamp(costs[0] / winner / 1.01, 0.5, range.low);
    range.high = clamp(costs[costs.length - 1] / winner * 1.02, range.high, mostTimes);
  }
  const axis = logAxis(range, margin, width - margin);
  const named = [1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100].filter((times) => times <= range.high &&
    !(times === 1.2 && range.high > 5) && !(times === 1.5 && range.high > 20));
  const scale = svg("svg", { class: "strip", viewBox: `0 0 ${width} 14`, "aria-hidden": "true" },
    ...named.map((times) => svg("text", { class: "tick", x: axis.at(times).toFixed(1), y: "11", "text-anchor": "middle" },
      `${times}×`)));
  const labelled = (name, kind, ...children) => [{ class: kind, "data-label": name }, ...children];
  const rowOf = (record) => {
    const { costs_ns: costs, verdicts, reason } = record.trials;
    const failures = Object.entries(verdicts).filter(([verdict]) => verdict !== "ok")
      .map(([verdict, number]) => `${number} ${verdict.replaceAll("_", " ")}`).join(", ");
    return row([{ class: "nowrap" }, `${series.name}=${record.axes[series.axis]}`],
      [{ class: "picture" }, drawStrip(record, axis)], labelled("winner", "r", time(record.cost_ns)),
      labelled("gain", "r", ratio(record.gain)), labelled("timed", "r", costs.length),
      labelled("failed", failures ? "bad" : "quiet", failures || "none",
        ...(reason ? [html("small", {}, clip(reason, 120))] : [])));
  };
  const table = html("table", { class: "strips" },
    head("Bucket", [{}, "Times the winner's time ", scale], right("Winner"), right("Gain"), right("Timed"), "Failed"),
    html("tbody", {}, ...most(tried, shown).map(rowOf)));
  const title = `${series.op.name} · ${series.title} (${tried.length} ${tried.length === 1 ? "bucket" : "buckets"})`;
  return html("details", open ? { open: "" } : {}, html("summary", {}, title), framed("Candidates", "", table),
    ...leftOut(tried.length - shown, "buckets are", "`kiln cache show` shows one in full"));
};

const drawCandidates = () => {
  const mostStrips = 240, mostStripsOfSeries = 40;
  let drawn = 0, more = 0, last = null;
  for (const series of allSeries) {
    const tried = series.points.filter((record) => record.trials);
    const shown = Math.min(tried.length, mostStripsOfSeries, mostStrips - drawn);
    if (shown === 0) more += tried.length;
    if (shown === 0) continue;
    section("candidates").append(drawStrips(series, tried, shown, series.op !== last));
    last = series.op;
    drawn += shown;
  }
  section("candidates").append(...leftOut(more, "buckets are", "`--op` shows one op's"),
    ...leftOut(facts.candidates_unread, "records' candidates are", "`--op` shows one op's"));
  return drawn;
};

// Returns the distinct arithmetic peaks of the records' types, the lowest first: {peak, types}.
const peaksOf = (roof, records) => {
  const types = [...new Set(records.map((record) => record.dtype))].filter((type) => roof.flops_per_second[type] > 0);
  return [...groupBy(types.sort(), (type) => roof.flops_per_second[type])]
    .map(([peak, of]) => ({ peak, types: of.join(", ") })).sort((a, b) => a.peak - b.peak);
};

const drawFlopsRoof = (drawn, x, y, memory, peaks) => {
  const { low, high } = x.range;
  const knee = Math.min((peaks.length > 0 ? peaks[peaks.length - 1].peak : y.range.high) / memory, high);
  const middle = Math.sqrt(low * knee);  // no mark lies above the slope
  drawn.append(path("roof", "M", x.at(low), " ", y.at(low * memory), "L", x.at(knee), " ", y.at(knee * memory)),
    label("roof-label", x.at(middle) - 8, y.at(middle * memory) - 2, "end", `${shortRate(memory, "B")} DRAM`));
  for (const { peak, types } of peaks) {
    const begin = Math.max(peak / memory, low);
    if (begin > high) continue;
    drawn.append(path("roof", "M", x.at(begin), " ", y.at(peak), "H", x.at(high)),
      label("roof-label", x.at(high) - 4, y.at(peak) - 5, "end", `${shortRate(peak, "FLOP")} ${types}`));
  }
};

const drawBytesRoof = (drawn, x, y, memory, peaks) => {
  const { low, high } = x.range;
  const highest = peaks.length > 0 ? peaks[peaks.length - 1].peak : 0;
  const knee = highest > 0 ? Math.min(highest / memory, high) : high;
  const end = highest > 0 ? Math.min(highest / y.range.low, high) : 0;
  const fall = end > knee ? ["L", x.at(end), " ", y.at(highest / end)] : [];
  drawn.append(path("roof", "M", x.at(low), " ", y.at(memory), "H", x.at(knee), ...fall),
    label("roof-label", x.at(low) + 6, y.at(memory) - 5, "start", `${shortRate(memory, "B")} DRAM`));
};

const drawPlane = (device, records) => {
  const mostMarks = 1500, colours = 6, roof = device.roof;
  const ops = [...new Set(records.map((record) => record.op))];
  const shown = most(records, mostMarks);
  const peaks = roof ? peaksOf(roof, records) : [];
  const intensities = widened(rangeOf(records.map((record) => record.intensity)), 2);
  const kindOf = (op) => `op op${op % colours}`;
  const planeOf = (caption, rateOf, unit, limits, drawRoof) => {
    const frame = frameOf(520, 340, 80);
    const rates = widened(rangeOf(records.map(rateOf).concat(limits)), 1.8);
    const x = logAxis(intensities, frame.left, frame.right), y = logAxis(rates, frame.bottom, frame.top);
    const drawn = chart(frame,
      { ...x, ticks: decimalTicks(x.range), text: shortNumber, label: "arithmetic intensity, FLOP a byte", lines: true },
      { ...y, ticks: decimalTicks(y.range), text: (rate) => shortRate(rate, unit) },
      `${caption} against arithmetic intensity on ${device.name}; the table of records has the numbers`);
    if (roof) drawRoof(drawn, x, y, roof.bytes_per_second, peaks);
    for (const record of shown) {
      const op = ops.indexOf(record.op);
      const share = record.share > 0 ? `, ${(100 * record.share).toFixed(0)} % of the roof` : "";
      drawn.append(mark(x.at(record.intensity), y.at(rateOf(record)), 3.4, op, kindOf(op), `${clip(record.op, 60)} ${
        record.bucket}: ${throughput(record.flops)} and ${bandwidth(record.bytes)}${share} · ${record.winner}`));
    }
    return figure(caption, drawn);
  };
  const limits = roof ? [roof.bytes_per_second] : [];
  return [html("h3", {}, clip(device.name, 80)),
    html("p", { class: "legend" }, ...most(ops, 12).map((op, i) =>
      html("span", {}, legendMark(i, kindOf(i)), ` ${clip(op, 60)}`))),
    note(roof ? `DRAM: ${roof.bytes_from}. Arithmetic: the data sheet's dense peak.`
      : "This device's roof is not known to Kiln, so none is drawn."),
    html("div", { class: "figures two" },
      planeOf("FLOP/s reached", (record) => record.flops, "FLOP",
        limits.map((memory) => intensities.low * memory).concat(peaks.map(({ peak }) => peak)), drawFlopsRoof),
      planeOf("Bytes/s reached", (record) => record.bytes, "B", limits, drawBytesRoof)),
    ...leftOut(records.length - shown.length, "points are", "`--op` shows one op's")];
};

const drawRoofline = () => {
  const mostDevices = 4;
  const byDevice = groupBy(facts.records.filter((record) => record.intensity > 0), (record) => record.device);
  const planes = facts.devices.filter((device) => byDevice.has(device));
  for (const device of most(planes, mostDevices)) section("roofline").append(...drawPlane(device, byDevice.get(device)));
  section("roofline").append(...leftOut(planes.length - mostDevices, "device classes are",
    "`--device-class` asks for one"));
  return planes.length;
};

const drawAttention = () => {
  const mostListed = 200;
  const stale = facts.records.filter((record) => record.standing !== "present");
  const reasonOf = (record) => (record.standing === "unknown" ? "no such op, or device class, here"
    : record.axes ? "the sources have changed" : "the op has no such bucket any more");
  fillTable("#stale", most(stale, mostListed).map((record) => row(clip(record.op, 60), record.bucket, reasonOf(record),
    [{ class: "nowrap" }, `${record.tunedOn}, kiln ${clip(record.kiln_version, 20)}`],
    [{ class: "path" }, record.source.name])));
  find("#stale").parentNode.after(...leftOut(stale.length - mostListed, "records are", "`--op` narrows the report"));
  const { found, most_launched: missing } = facts.missing;
  find("#problems").append(count(facts.problems.counted));
  fillTable("#missing", missing.map((each) =>
    row(clip(each.op, 60), each.bucket, right(count(each.launches)), right(count(each.sizes)))));
  const { files = [], buckets = 0, missing: lacking = 0, gaps = [] } = facts.workload ?? {};
  find("#gaps-found").append(`${count(lacking)} of ${count(buckets)} buckets`);
  find("#gaps-files").append(files.join(", "));
  fillTable("#gaps", gaps.map((each) => row(clip(each.op, 60), each.buckets, each.devices)));
  const { counted, unreadable } = facts.problems;
  section("attention").append(...leftOut(found - missing.length, "buckets are", "the least launched ones"),
    ...(unreadable > 0 ? [note(`${count(unreadable)} counted problems belong to no op that is loaded here.`)] : []));
  return { stale: stale.length > 0, counted: counted > 0, served: counted > 0 && found === 0, missing: found > 0,
    workload: files.length > 0, covered: files.length > 0 && lacking === 0, gaps: lacking > 0 };
};

const drawAll = () => {
  const newest = facts.records.reduce((last, record) => Math.max(last, record.tuned), 0);
  find("#newest").append(`By kiln ${facts.kiln}.${newest > 0 ? ` Newest record of ${date(newest)}.` : ""}`);
  drawTiles();
  drawUses();
  drawFiles();
  drawRecords();
  const holds = {
    uses: facts.launches.most.length + facts.misses.most.length > 0,
    records: facts.records.length > 0,
    curves: drawLengths() > 0,
    trials: drawCandidates() > 0,
    rates: drawRoofline() > 0,
    ...drawAttention(),
  };
  for (const each of document.querySelectorAll("[data-if]")) {
    const [, not, what] = each.dataset.if.match(/^(!?)(\w+)$/);
    if (holds[what] === (not === "!")) each.remove();
  }
  find("main").hidden = false;
};
drawAll();
