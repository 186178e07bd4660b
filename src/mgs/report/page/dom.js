// Elements from plain values. Text only ever becomes text nodes: nothing here parses HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  const given = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...given);
  return element;
}

const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

// Everyone who has a colour: the runs, then the starts, then people. Charts and texts refer to places in this list.
// After eight runs colours come again, dashed.
const series = [
  ...data.runs.map((run, i) => ({ name: run.name, colour: `c${i % 8}${i % 16 < 8 ? "" : " again"}` })),
  ...data.voices.filter((voice) => voice.run === null).map((voice) => ({ name: voice.name, colour: "start" })),
  { name: "human", colour: "human" },
];
const HUMAN = series.length - 1;
const starts = data.voices.filter((voice) => voice.run === null);

// A voice's place among the series; the one after the last voice is people's.
function seriesOf(voice) {
  if (voice === data.voices.length) return HUMAN;
  const { run } = data.voices[voice];
  return run !== null ? run : data.runs.length + starts.indexOf(data.voices[voice]);
}

const hidden = new Set();

function applyHidden(root = document) {
  for (const element of root.querySelectorAll("[data-series]")) {
    element.classList.toggle("off", hidden.has(Number(element.dataset.series)));
  }
}

function legend() {
  const used = series.filter((_, i) => i < data.runs.length || data.examples.length);
  return used.map((one, i) =>
    el("button", {
      class: `chip ${one.colour}`,
      type: "button",
      "aria-pressed": "true",
      title: "hide or show",
      onclick: (event) => {
        if (!hidden.delete(i)) hidden.add(i);
        event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(i)));
        applyHidden();
      },
    }, el("span", { class: "dot" }), el("bdi", {}, one.name)),
  );
}

function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return String(value).replace("-", "−");
  const size = Math.abs(value);
  const rounded = Number(value.toPrecision(4));
  return (size < 1e-3 || size >= 1e6 ? rounded.toExponential() : String(rounded)).replace("-", "−");
}
