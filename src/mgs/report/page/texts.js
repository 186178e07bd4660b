// Outputs side by side, repeated 4-grams marked, to filter and to search.

const PAGE = 20;
const REPETITIVE = 0.3; // share of repeated 4-grams
const LONG = 700; // characters that are shown at once
const FILTERS = {
  all: ["All", () => true],
  endless: ["Does not end", (output) => !output.ended],
  repetitive: ["Repetitive", (output) => (output.repetition ?? 0) >= REPETITIVE],
  changed: ["Changed most", () => true],
};

// Places count characters as people do, JavaScript's strings count halves of some.
function marked(text, places) {
  const characters = Array.from(text);
  const parts = [];
  let done = 0;
  for (const [start, end] of places) {
    parts.push(characters.slice(done, start).join(""), el("mark", {}, characters.slice(start, end).join("")));
    done = end;
  }
  return [...parts, characters.slice(done).join("")];
}

function said(index, name, text, places, notes) {
  const body = el("p", { class: "said", dir: "auto" }, marked(text, places));
  const more = text.length > LONG && el("button", {
    type: "button", class: "link",
    onclick: (event) => {
      const short = body.classList.toggle("short");
      event.currentTarget.textContent = short ? "show all" : "show less";
    },
  }, "show all");
  if (more) body.classList.add("short");
  return el("div", { class: `voice ${series[index].colour}`, "data-series": index },
    el("div", { class: "who" },
      el("span", { class: "dot" }), el("bdi", {}, name), notes.map((note) => el("small", {}, note))),
    el("div", {}, body, more));
}

const tokens = (length) => `${length} ${length === 1 ? "token" : "tokens"}`;

function outputRow(output) {
  const share = output.repetition ?? 0;
  const notes = [tokens(output.length), ...(share > 0 ? [`${Math.round(100 * share)}% repeated`] : [])];
  const row = said(seriesOf(output.voice), data.voices[output.voice].name, output.text, output.repeated, notes);
  const end = output.ended ? el("span", { class: "end" }, " ⟨eos⟩") : el("span", { class: "endless" }, " →\u00a0∞");
  row.querySelector(".said").append(end);
  return row;
}

function exampleCard(example) {
  const human = said(HUMAN, "human", example.target, [], [tokens(example.length)]);
  return el("article", { class: "card example" },
    el("p", { class: "prefix", dir: "auto" }, example.prefix.trim(), data.task === "translation" ? null : " …"),
    human, example.outputs.map(outputRow));
}

function chosen(state) {
  const needle = state.search.trim().toLowerCase();
  const test = FILTERS[state.filter][1];
  const inVoice = (output) => state.voice === "any" || output.voice === Number(state.voice);
  const texts = (example) => [example.prefix, example.target, ...example.outputs.map((output) => output.text)];
  const found = data.examples.filter((example) =>
    example.outputs.some((output) => inVoice(output) && test(output))
    && (!needle || texts(example).some((text) => text.toLowerCase().includes(needle))));
  if (state.filter !== "changed") return found;
  return found.filter((example) => example.change > 0).sort((a, b) => b.change - a.change);
}

function textsPanel() {
  if (!data.examples.length) {
    return [el("p", { class: "empty" }, "No outputs were kept: `mgs train` keeps some when it evaluates.")];
  }
  const state = { filter: "all", voice: "any", search: "", num: PAGE };
  const list = el("div", { id: "examples" });
  const count = el("p", { id: "count", role: "status" });
  const next = () => show({ num: state.num + PAGE });
  const more = el("button", { type: "button", id: "more", class: "chip", onclick: next }, "More");
  const buttons = Object.entries(FILTERS).map(([name, [label]]) => {
    const choose = () => show({ filter: name, num: PAGE });
    return el("button", { type: "button", class: "chip filter", "data-filter": name, onclick: choose }, label);
  });
  const search = el("input", {
    type: "search", id: "search", placeholder: "Search in all texts", "aria-label": "Search in all texts",
    oninput: (event) => show({ search: event.target.value, num: PAGE }),
  });
  const voice = el("select", {
    id: "voice", "aria-label": "Whose outputs filters look at",
    onchange: (event) => show({ voice: event.target.value, num: PAGE }),
  }, el("option", { value: "any" }, "of anyone"),
  data.voices.map((one, i) => el("option", { value: i }, `of ${one.name}`)));
  function show(changes) {
    Object.assign(state, changes);
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.filter === state.filter));
    const found = chosen(state);
    list.replaceChildren(...found.slice(0, state.num).map(exampleCard));
    count.textContent = `${found.length} of ${data.examples.length}`;
    more.hidden = found.length <= state.num;
    applyHidden(list);
  }
  show({});
  const rule = el("p", { class: "note" }, "Marked: 4-grams of tokens that occurred before in the same text. ",
    `Repetitive: at least ${100 * REPETITIVE}% of them.`);
  return [el("div", { class: "controls" }, buttons, voice, search, count), rule, list, more];
}
