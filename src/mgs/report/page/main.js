// Tabs, the comparison of settings, and putting it all on the page.

const breakable = (text) => text.split(/(?<=_)/).flatMap((part) => [part, el("wbr")]); // on narrow screens

// Settings are not rounded.
function shown(value) {
  if (Array.isArray(value)) return value.join(", ");
  const small = typeof value === "number" && value !== 0 && Math.abs(value) < 1e-3;
  return small ? value.toExponential() : String(value ?? "–");
}

const FIRST = ["method", "cost", "model", "start", "data", "decoder"];

function settingsPanel() {
  const known = new Set(data.runs.flatMap((run) => Object.keys(run.settings)));
  const having = (name) => data.runs.filter((run) => name in run.settings);
  const values = (name) => having(name).map((run) => JSON.stringify(run.settings[name]));
  const differs = (name) => new Set(values(name)).size > 1;
  const sorted = [...known].sort();
  const names = [...new Set([...FIRST.filter((name) => known.has(name)), ...sorted.filter(differs), ...sorted])];
  const kind = (name) => (differs(name) ? "differs" : values(name).length < data.runs.length ? "partly" : "alike");
  const about = [...new Set(data.runs.flatMap((run) => Object.keys(run.about)))];
  const row = (name, cells, how) => el("tr", { class: how },
    el("th", { scope: "row" }, breakable(name)), cells.map((value, i) =>
      el("td", { "data-series": i, class: value === undefined && "none" }, breakable(shown(value)))));
  const several = data.runs.length > 1;
  const table = el("table", { class: several ? "settings only" : "settings" },
    el("thead", {}, el("tr", {}, el("th", {}), data.runs.map((run, i) =>
      el("th", { scope: "col", "data-series": i, class: series[i].colour },
        el("span", { class: "dot" }), el("bdi", {}, run.name))))),
    el("tbody", {}, about.map((name) => row(name, data.runs.map((run) => run.about[name]), "about"))),
    el("tbody", {}, names.map((name) => row(name, data.runs.map((run) => run.settings[name]), kind(name)))));
  const toggle = (event) => table.classList.toggle("only", event.target.checked);
  const only = several && el("label", { class: "chip only" },
    el("input", { type: "checkbox", id: "only", checked: true, onchange: toggle }), " only what differs");
  const signatures = data.runs.flatMap((run) =>
    Object.entries(run.signatures).map(([split, text]) => `${run.name}, ${split}\n${text}`));
  return [
    only,
    el("section", { class: "card" }, el("h2", {}, "Settings"), el("div", { class: "scroll" }, table)),
    signatures.length > 0 && el("section", { class: "card" },
      el("h2", {}, "Signatures"), el("pre", { class: "signature" }, signatures.join("\n\n"))),
  ];
}

const TABS = {
  figures: ["Figures", figuresPanel],
  curves: ["Curves", curvesPanel],
  texts: [data.task === "translation" ? "Translations" : "Texts", textsPanel],
  settings: [data.runs.length > 1 ? "Comparison" : "Settings", settingsPanel],
};

function open(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const selected = tab.dataset.tab === name;
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
    document.getElementById(`panel-${tab.dataset.tab}`).hidden = !selected;
  }
}

function arrows(event) {
  const names = Object.keys(TABS);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const at = names.indexOf(event.currentTarget.dataset.tab);
  const next = names[(at + step + names.length) % names.length];
  location.hash = next;
  document.getElementById(`tab-${next}`).focus();
}

function fromAddress() {
  const name = location.hash.slice(1);
  open(Object.hasOwn(TABS, name) ? name : "figures");
}

for (const [name, [label, panel]] of Object.entries(TABS)) {
  document.getElementById("tabs").append(el("a", {
    role: "tab", id: `tab-${name}`, href: `#${name}`, "data-tab": name, "aria-controls": `panel-${name}`,
    onkeydown: arrows,
  }, label));
  document.getElementById("panels").append(
    el("section", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}` }, panel()));
}
document.getElementById("legend").append(...legend());
document.getElementById("summary").append(data.runs.length > 1 ? `${data.runs.length} runs` : data.runs[0].summary);
document.querySelector("footer").append(`mgs ${data.version}`);
addEventListener("hashchange", fromAddress);
fromAddress();
