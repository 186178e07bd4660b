// Figures: headline tiles, tables with the paper's figures below ours, and what was measured when.

const BETTER = { 1: "good", "-1": "bad", 0: "same" };

// Before and after, for each figure of the first table that has both; only where there is one run to tell of.
function tiles() {
  const [table] = data.tables;
  const rows = table ? table.rows.filter((row) => row.run !== null) : [];
  if (rows.length !== 1) return null;
  const shown = table.columns.map((column, i) => ({ ...column, ...rows[0].cells[i] }))
    .filter((cell) => cell.before !== null && cell.name !== "lm_with_prefix"); // `lm` and a constant
  if (!shown.length) return null;
  return el("div", { class: "tiles" }, shown.map((cell) =>
    el("div", { class: "card tile", title: cell.meaning },
      el("span", { class: "what" }, cell.heading),
      el("span", { class: "value" }, cell.value),
      el("span", { class: "was" }, `from ${cell.before} `,
        cell.change && el("em", { class: BETTER[cell.change.better] }, cell.change.text)))));
}

// A line for the values, and one with a label of its own for each thing that stands beside them.
function figuresRows(row, colour) {
  const line = (kind, label, show) => el("tr", { class: kind },
    el("th", { scope: "row" }, label), row.cells.map((cell) => el("td", {}, show(cell))));
  const has = (what) => row.cells.some((cell) => cell[what]);
  const change = ({ change }) => change && el("em", { class: BETTER[change.better] }, change.text);
  return el("tbody", { class: colour, "data-series": row.run },
    line("ours", [el("span", { class: "dot" }), el("bdi", {}, row.label)], (cell) => cell.value),
    has("change") && line("beside", "since the start", change),
    row.paper && line("beside", `paper: ${row.paper}`, (cell) => cell.paper),
    has("paper_change") && line("beside", "paper’s change", (cell) => cell.paper_change && cell.paper_change.text));
}

function figuresTable(table) {
  const colour = (row) => (row.run !== null ? series[row.run].colour : row.label === "human" ? "human" : "start");
  const paper = table.rows.some((row) => row.paper);
  const task = data.task === "translation" ? "IWSLT’14 German–English" : "GPT-2 117M, WikiText-103";
  const setting = `${task} ${table.split.split(" ")[0]}`;
  return el("section", { class: "card" },
    el("h2", {}, "Figures ", el("span", {}, table.split)),
    el("div", { class: "scroll" }, el("table", { class: "figures" },
      el("thead", {}, el("tr", {}, el("th", {}),
        table.columns.map((column) => el("th", { scope: "col", title: column.meaning }, column.heading)))),
      table.rows.map((row) => figuresRows(row, colour(row))))),
    paper && el("p", { class: "note" }, `Below ours, the paper’s figures and their change since MLE: ${setting}. `,
      "Its model and data are others: compare changes, not values."),
    el("pre", { class: "signature" }, table.signature));
}

function evaluationsTable(run, index) {
  const names = [...new Set(run.evaluations.flatMap(Object.keys))].filter((name) => name !== "step");
  return el("details", { class: "card", "data-series": index },
    el("summary", {}, el("span", { class: `dot ${series[index].colour}` }), el("bdi", {}, run.name),
      `: ${run.evaluations.length} ${run.evaluations.length === 1 ? "evaluation" : "evaluations"}`),
    el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, el("th", {}, "update"), names.map((name) => el("th", {}, name)))),
      el("tbody", {}, run.evaluations.map((entry) =>
        el("tr", {}, el("th", {}, number(entry.step)), names.map((name) => el("td", {}, number(entry[name])))))))));
}

function figuresPanel() {
  const lengths = data.lengths && {
    ...data.lengths, lines: data.lengths.lines.map((line) => ({ ...line, series: seriesOf(line.voice) })),
  };
  const measured = data.runs.flatMap((run, i) => (run.evaluations.length ? [evaluationsTable(run, i)] : []));
  return [
    tiles(),
    data.tables.map(figuresTable),
    data.tables.length === 0 && el("p", { class: "empty" }, "No figures yet: no evaluation was made."),
    lengths && chart(lengths),
    measured.length > 0 && el("h2", { class: "between" }, "Measured while training"),
    measured,
  ];
}

// Runs of few updates are a scribble at the left edge of those of many.
function acrossChoice() {
  if (new Set(data.runs.map((run) => run.updates)).size < 2) return null;
  const choose = (name) => {
    across = name;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.across === across));
    dispatchEvent(new Event("across"));
  };
  const buttons = Object.entries({ update: "updates", [SHARE]: SHARE }).map(([name, label]) =>
    el("button", { type: "button", class: "chip filter", "data-across": name, "aria-pressed": String(name === across),
      onclick: () => choose(name) }, label));
  return el("div", { class: "choice" }, buttons);
}

function curvesPanel() {
  if (!data.curves.length) return [el("p", { class: "empty" }, "No curves: the log is empty.")];
  return [acrossChoice(), el("div", { class: "grid" }, data.curves.map(chart))];
}
