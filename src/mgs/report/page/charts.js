// Line charts and histograms, drawn again whenever their width changes.

const MARGIN = { left: 46, right: 12, top: 10, bottom: 40 };
const HEIGHT = 230;

// None where there is but a rounding error: steps of its size would never get from one tick to the next.
const extent = (low, high) => (high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high)) ? high - low : 0);

function niceTicks(low, high, about) {
  const rough = (extent(low, high) || Math.abs(high) || 1) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => rough <= factor * power);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) ticks.push(10 ** power);
  const inside = ticks.filter((tick) => tick >= low && tick <= high);
  return inside.length > 6 ? inside.filter((_, i) => i % Math.ceil(inside.length / 6) === 0) : inside;
}

// Where a value lies between two pixels, on a plain or a logarithmic axis.
function scale(low, high, from, to, log) {
  const [a, b] = log ? [Math.log10(low), Math.log10(high)] : [low, high];
  return (value) => from + (((log ? Math.log10(value) : value) - a) / (b - a || 1)) * (to - from);
}

const SHARE = "share of the run";
let across = "update"; // what curves are drawn over

// A panel as it is drawn: over updates as it comes, or over the part of each run that is done.
function placed(panel) {
  if (panel.x !== "update" || across === "update") return panel;
  const part = (line) => line.points.map(([x, y]) => [x / data.runs[line.series].updates, y]);
  return { ...panel, x: across, lines: panel.lines.map((line) => ({ ...line, points: part(line) })) };
}

function bounds(panel) {
  const points = panel.lines.flatMap((line) => line.points);
  const levels = (panel.levels ?? []).map((level) => level.value);
  const [xs, ys] = [points.map((p) => p[0]), [...points.map((p) => p[1]), ...levels]];
  let [low, high] = [ys.reduce((a, b) => Math.min(a, b)), ys.reduce((a, b) => Math.max(a, b))];
  const room = extent(low, high) * 0.08 || Math.abs(high) * 0.1 || 1;
  if (panel.log) [low, high] = [low / 1.3, high * 1.3];
  else [low, high] = [panel.steps || (low >= 0 && low - room < 0) ? 0 : low - room, high + room];
  return { x: [xs.reduce((a, b) => Math.min(a, b)), xs.reduce((a, b) => Math.max(a, b))], y: [low, high] };
}

function outline(points, x, y, steps) {
  if (!steps) return points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)},${y(b).toFixed(1)}`).join("");
  const [first] = points;
  let path = `M${x(first[0])},${y(0)}V${y(first[1])}`;
  for (const [a, b] of points.slice(1)) path += `H${x(a).toFixed(1)}V${y(b).toFixed(1)}`;
  return path;
}

function axes(panel, range, x, y, width) {
  const bottom = HEIGHT - MARGIN.bottom;
  const rows = panel.log ? logTicks(...range.y) : niceTicks(...range.y, 5);
  const columns = niceTicks(...range.x, width < 400 ? 4 : 7)
    .filter((tick) => panel.x === SHARE || Number.isInteger(tick));
  return svg("g", { class: "axes" },
    rows.map((tick) => svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick) })),
    rows.map((tick) => svg("text", { x: MARGIN.left - 7, y: y(tick) + 4, "text-anchor": "end" }, number(tick))),
    columns.map((tick) => svg("text", { x: x(tick), y: bottom + 17, "text-anchor": "middle" }, number(tick))),
    svg("text", { x: width - MARGIN.right, y: HEIGHT - 6, "text-anchor": "end", class: "unit" }, panel.x),
  );
}

function drawLine(line, panel, x, y) {
  const { colour } = series[line.series];
  const path = svg("path", { d: outline(line.points, x, y, panel.steps), class: panel.steps ? "area" : "line" });
  const dots = panel.steps || line.points.length > 25 ? [] : line.points.map(([a, b]) =>
    svg("circle", { cx: x(a), cy: y(b), r: 3 }));
  return svg("g", { class: colour, "data-series": line.series }, path, dots);
}

// Where a line began, across the panel.
function drawLevel(level, x, y) {
  return svg("line", { ...x, y1: y(level.value), y2: y(level.value), class: `level ${series[level.series].colour}`,
    "data-series": level.series });
}

const nearest = (values, at) => values.reduce((best, p) => (Math.abs(p - at) < Math.abs(best - at) ? p : best));

// What every line says at the place nearest to the pointer.
function reading(panel, at) {
  const shown = panel.lines.filter((line) => !hidden.has(line.series));
  const places = [...new Set(shown.flatMap((line) => line.points.map((p) => p[0])))];
  if (!places.length) return null;
  const place = panel.steps
    ? Math.max(...places.filter((p) => p <= at), Math.min(...places))
    : nearest(places, at);
  const rows = shown.flatMap((line) => {
    const own = nearest(line.points.map((p) => p[0]), place);
    const found = line.points.find((p) => p[0] === own);
    return Math.abs(own - place) <= (panel.x === SHARE ? 0.02 : 0) ? [{ ...series[line.series], value: found[1] }] : [];
  });
  return { place, rows };
}

function follow(panel, drawing, tip, rule, x, range) {
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const left = x(range.x[0]), right = x(range.x[1]);
    const share = (event.clientX - box.left - left) / (right - left || 1);
    const found = reading(panel, range.x[0] + share * (range.x[1] - range.x[0]));
    if (!found) return;
    rule.setAttribute("x1", x(found.place));
    rule.setAttribute("x2", x(found.place));
    rule.classList.remove("off");
    tip.replaceChildren(el("b", {}, `${panel.x} ${number(found.place)}`), ...found.rows.map((row) =>
      el("span", { class: row.colour },
        el("span", { class: "dot" }), el("bdi", {}, row.name), el("i", {}, number(row.value)))));
    tip.hidden = false;
    const beside = share < 0.5 ? x(found.place) + 12 : x(found.place) - 12 - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(beside, box.width - tip.offsetWidth))}px`;
  });
  drawing.addEventListener("pointerleave", () => {
    tip.hidden = true;
    rule.classList.add("off");
  });
}

function chart(whole) {
  const stage = el("div", { class: "stage" });
  const draw = () => {
    const width = stage.clientWidth;
    if (!width) return;
    const panel = placed(whole);
    const range = bounds(panel);
    const x = scale(...range.x, MARGIN.left + 4, width - MARGIN.right - 4, false);
    const y = scale(...range.y, HEIGHT - MARGIN.bottom, MARGIN.top, panel.log);
    const tip = el("div", { class: "tip", hidden: true });
    const rule = svg("line", { class: "rule off", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
    const drawing = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": panel.title },
      axes(panel, range, x, y, width), rule,
      (panel.levels ?? []).map((level) => drawLevel(level, { x1: MARGIN.left, x2: width - MARGIN.right }, y)),
      [...panel.lines].reverse().map((line) => drawLine(line, panel, x, y)));
    follow(panel, drawing, tip, rule, x, range);
    stage.replaceChildren(drawing, tip);
    applyHidden(stage);
  };
  new ResizeObserver(draw).observe(stage);
  addEventListener("across", draw);
  return el("figure", { class: "card chart" },
    el("figcaption", {},
      el("b", {}, whole.title), el("span", {}, whole.note + (whole.log ? " (logarithmic)" : ""))), stage);
}
