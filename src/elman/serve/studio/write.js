// Write: type, see what may follow by each model, take a word, go back, branch.

import { stream } from "./api.js";
import { Column } from "./column.js";
import { make, say, visible } from "./dom.js";
import { MAX_MODELS, page, writeLink } from "./link.js";
import { exporting } from "./export.js";

const DRAWN_TOKENS = 20;
const MAX_ROWS = 100; // words below a model; the link says how many
const MAX_PAST = 200;
const MAX_BRANCHES = 12;
const SLIDERS = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, shown: value => (value ? value.toFixed(2) : "0, greedy") },
  { name: "topK", label: "Top-k", min: 0, max: 100, step: 1, shown: value => value || "all" },
  { name: "topP", label: "Top-p", min: 0.05, max: 1, step: 0.05, shown: value => value.toFixed(2) },
];

export function showWrite(view, models) {
  const writers = models.filter(model => model.left_to_right);
  if (!writers.length) {
    view.replaceChildren(make("p", { class: "card" }, "None of these models writes: look at them in Look."));
    return () => {};
  }
  const known = new Set(writers.map(model => model.id));
  page.models = page.models.filter(id => known.has(id)).slice(0, MAX_MODELS);
  if (!page.models.length) page.models = writers.slice(-2).map(model => model.id);
  page.rows = Math.min(MAX_ROWS, Math.max(1, Math.round(page.rows) || 1));
  const past = [];
  let columns = [];
  let drawing = null; // an AbortController while a continuation is written

  const text = make("textarea", {
    class: "page", rows: 2, spellcheck: "false", autocapitalize: "off", autocomplete: "off", placeholder: "Type, or take a word below",
    "aria-label": "Text", oninput: () => typed(), onkeydown: event => keyed(event),
  });
  text.value = page.text;
  const branches = make("div", { class: "branches", role: "group", "aria-label": "Branches" });
  const side = make("div", { class: "columns" });
  const back = make("button", { type: "button", onclick: () => goBack(), title: "To where the last word was taken (states are kept)" }, "Back");
  const draw = make("button", { type: "button", class: "first", onclick: () => toggleDrawing() }, "Write on");

  function typed() {
    const isWordEnd = /\s$/.test(text.value) && text.value.length > page.text.length;
    if (isWordEnd) remember(page.text);
    page.text = text.value;
    changed({ keeps: isWordEnd });
  }

  // Everything that depends on the text is shown anew.
  function changed(options) {
    fit(text);
    back.disabled = !past.length;
    showBranches();
    writeLink();
    for (const column of columns) column.refresh(options);
  }

  function setText(value, options) {
    text.value = page.text = value;
    changed(options);
  }

  function remember(value) {
    if (past.at(-1) !== value) past.push(value);
    if (past.length > MAX_PAST) past.shift();
  }

  function goBack() {
    if (past.length) setText(past.pop());
  }

  function goTo(value) {
    remember(page.text);
    setText(value, { keeps: true });
  }

  function showBranches() {
    branches.replaceChildren(
      ...page.branches.map(one => make(
        "span",
        { class: "chip" },
        make("button", { type: "button", "aria-pressed": String(one === page.text), title: one, onclick: () => goTo(one) }, shorten(one)),
        make("button", { type: "button", "aria-label": `Forget the branch ${shorten(one)}`, onclick: () => forget(one) }, "×"),
      )),
    );
  }

  function branch() {
    if (!page.branches.includes(page.text)) page.branches = [...page.branches, page.text].slice(-MAX_BRANCHES);
    changed({ keeps: true });
    say("Kept as a branch");
  }

  function forget(value) {
    page.branches = page.branches.filter(one => one !== value);
    changed();
  }

  async function toggleDrawing() {
    if (drawing) return drawing.abort();
    drawing = new AbortController();
    draw.textContent = "Stop";
    remember(page.text);
    try {
      const shaping = { temperature: page.temperature, top_k: page.topK || null, top_p: page.topP };
      const asked = { model: page.models[0], prompt: page.text, max_tokens: DRAWN_TOKENS, ...shaping };
      for await (const piece of stream(asked, drawing.signal)) if (piece) setText(page.text + piece);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    }
    drawing = null;
    draw.textContent = "Write on";
    changed({ keeps: true });
  }

  function keyed(event) {
    if (event.key === "Enter" && event.ctrlKey) toggleDrawing();
    else if (event.key === "Escape" && drawing) drawing.abort();
    else if (event.key === "ArrowDown" && event.ctrlKey) columns[0].words.querySelector("button")?.focus();
    else return;
    event.preventDefault();
  }

  function showColumns() {
    for (const box of chooser.querySelectorAll("input")) {
      box.disabled = box.checked ? page.models.length === 1 : page.models.length >= MAX_MODELS;
    }
    const before = new Map(columns.map(column => [column.model.id, column]));
    columns = page.models.map(id => before.get(id) ?? new Column(models.find(model => model.id === id), {
      onTake: (value, from) => {
        remember(from);
        setText(value);
      },
      onBack: value => goTo(value),
    }));
    side.replaceChildren(...columns.map(column => column.element));
    side.style.setProperty("--columns", columns.length);
  }

  function choose(id, isChosen) {
    page.models = isChosen ? [...page.models, id] : page.models.filter(one => one !== id);
    showColumns();
    changed();
  }

  const chooser = make(
    "fieldset",
    { class: "models" },
    make("legend", {}, "Models"),
    writers.map(({ id }) => make(
      "label", {},
      make("input", { type: "checkbox", value: id, checked: page.models.includes(id), onchange: event => choose(id, event.target.checked) }),
      id,
    )),
  );
  const sliders = SLIDERS.map(slider => makeSlider(slider, () => {
    writeLink();
    for (const column of columns) column.refresh();
  }));

  view.replaceChildren(
    make(
      "section", { class: "card" },
      chooser, text,
      make("div", { class: "actions" }, draw, back, make("button", { type: "button", onclick: branch }, "Branch here"), branches),
      make("div", { class: "sliders" }, sliders),
    ),
    side,
    make("p", { class: "legend" }, make("span", { class: "scale" }), make("span", {}, "0 to 10 nats: hotter words surprised the model more; underlined ones it does not know. A click on one goes back to before it. Bars are as the sliders shape them, lines as the model has it.")),
    exporting("write", { specs: () => columns.filter(one => one.next).map(one => nextSpec(one)), data: () => collected(columns) }),
    make("p", { class: "hint" }, "Keys: Ctrl+↓ from the text to the words, ↑ ↓ among them, Enter or 1 to 9 takes one, Ctrl+Enter writes on, Escape stops."),
  );
  showColumns();
  changed();
  return () => drawing?.abort();
}

function makeSlider({ name, label, min, max, step, shown }, onchange) {
  page[name] = Math.min(max, Math.max(min, page[name]));
  const output = make("output", {}, String(shown(page[name])));
  const input = make("input", {
    type: "range", min, max, step, name,
    oninput: () => {
      page[name] = Number(input.value);
      output.textContent = shown(page[name]);
      onchange();
    },
  });
  input.value = page[name];
  return make("label", { class: "slider" }, make("span", {}, label, " ", output), input);
}

function fit(text) {
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight + 2, window.innerHeight * 0.5)}px`;
}

function shorten(text) {
  const line = visible(text.trim()).replaceAll("·", " ");
  return line.length > 28 ? `…${line.slice(-27)}` : line || "(empty)";
}

function nextSpec(column) {
  const rows = column.next.tokens.flatMap((row, place) => [
    { place, token: visible(row.token), share: row.probability, is: "as it is" },
    { place, token: visible(row.token), share: row.shaped, is: "shaped" },
  ]);
  return {
    title: { text: `What may follow, by ${column.model.id}`, subtitle: page.text.slice(-80), anchor: "start" },
    width: 360,
    height: { step: 22, for: "position" },
    data: { values: rows },
    mark: "bar",
    encoding: {
      y: { field: "token", type: "nominal", sort: { field: "place" }, title: null },
      yOffset: { field: "is" },
      x: { field: "share", type: "quantitative", title: "probability", axis: { format: "~%" } },
      color: { field: "is", type: "nominal", title: null },
    },
  };
}

function collected(columns) {
  const shaping = { temperature: page.temperature, top_k: page.topK || null, top_p: page.topP };
  return { text: page.text, ...shaping, branches: page.branches, models: columns.map(({ model, next, score }) => ({ model: model.id, next, score })) };
}
