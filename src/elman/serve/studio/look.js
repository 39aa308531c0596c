// Look: what a model answers to the text on the page, and what goes on inside it.

import { ask } from "./api.js";
import { showAnswer } from "./answers.js";
import { choice, debounced, field, make } from "./dom.js";
import { exporting } from "./export.js";
import { page, writeLink } from "./link.js";
import { draw } from "./picture.js";

const TYPING_WAIT = 500; // ms after the last key
const ANSWER = "answer";
const ABOUT = {
  [ANSWER]: "What the model says of the text.",
  surprisal: "How surprising each token is, in nats.",
  gradients: "How much a loss depends on what the layers held so many tokens before.",
  reach: "How much worse a token is predicted if what stands further back is deleted, replaced or shuffled.",
  attention: "Where the model looked: rows look, columns are looked at.",
  saliency: "How much each token that was read speaks for (orange) or against (blue) what was predicted.",
  gates: "How far the gates of each layer were open, token by token.",
  states: "The units of the layers that vary most, token by token.",
  neighbours: "The nearest words of each word of the text.",
  analogy: "Three words: the first is to the second as the third is to what?",
  map: "The most frequent words, near one another where their vectors are.",
  cloze: "What would fill the gap: write [MASK] somewhere in the text.",
  counts: "The n-grams that a count model used at each place.",
  novelty: "What of the text stands in the training text as well.",
};
const NO_TEXT = ["map"];

export function showLook(view, models) {
  if (!models.some(model => model.id === page.model)) page.model = page.models[0] ?? models[0].id;
  let found = null; // what was asked for last: {model, kind, text, answer}
  let turns = 0;
  const text = make("textarea", { class: "page", rows: 2, spellcheck: "false", "aria-label": "Text", placeholder: "A text to look at" });
  text.value = page.text;
  const question = make("input", { type: "text", value: page.question, "aria-label": "Question" });
  const kinds = make("div", { class: "field" });
  const about = make("p", { class: "facts" });
  const result = make("div", { class: "card result", "aria-live": "polite" });
  const run = debounced(TYPING_WAIT, () => show());
  text.addEventListener("input", () => {
    page.text = text.value;
    run();
  });
  question.addEventListener("input", () => {
    page.question = question.value;
    run();
  });
  const chooser = choice(models.map(({ id, task }) => ({ value: id, label: `${id} (${task})` })), page.model, id => {
    page.model = id;
    showKinds();
    show();
  });
  const asking = field("Question", question);

  function chosen() {
    return models.find(model => model.id === page.model);
  }

  function showKinds() {
    const model = chosen();
    const names = [...(model.left_to_right ? [] : [ANSWER]), ...model.kinds];
    if (!names.includes(page.kind)) page.kind = names[0] ?? "";
    asking.hidden = model.task !== "qa";
    kinds.replaceChildren(
      make("span", {}, "What to see"),
      make(
        "div", { class: "kinds", role: "group", "aria-label": "What to see" },
        names.map(name => make("button", { type: "button", "aria-pressed": String(name === page.kind), onclick: () => setKind(name) }, name)),
      ),
    );
  }

  function setKind(name) {
    page.kind = name;
    showKinds();
    kinds.querySelector("[aria-pressed=true]").focus();
    show();
  }

  async function show() {
    writeLink();
    const model = chosen();
    const { kind } = page;
    const turn = ++turns;
    about.textContent = ABOUT[kind] ?? "";
    const lacks = missing(model, kind);
    if (lacks) {
      found = null;
      result.replaceChildren(make("p", { class: "facts" }, `There is nothing to look at yet: type a ${lacks} above.`));
      return;
    }
    result.classList.add("busy");
    try {
      const answer = await (kind === ANSWER ? predict(model) : explain(model, kind));
      if (turn !== turns) return;
      found = { model: model.id, kind, text: page.text, answer };
      if (kind === ANSWER) showAnswer(result, answer);
      else await showExplanation(result, answer);
    } catch (error) {
      if (turn !== turns) return;
      found = null;
      result.replaceChildren(make("p", { class: "trouble", role: "alert" }, error.message));
    } finally {
      if (turn === turns) result.classList.remove("busy");
    }
  }

  view.replaceChildren(
    make("section", { class: "card" }, make("div", { class: "fields" }, field("Model", chooser)), text, asking, kinds, about),
    result,
    exporting("look", { specs: () => pictures(found), data: () => found }),
  );
  showKinds();
  show();
  return () => {
    turns += 1;
  };
}

// What has to be typed before there is anything to show.
function missing(model, kind) {
  if (NO_TEXT.includes(kind)) return "";
  if (!page.text.trim()) return "text";
  return model.task === "qa" && !page.question.trim() ? "question" : "";
}

async function predict(model) {
  const lines = model.task === "qa" ? [asked()] : page.text.split("\n").filter(line => line.trim());
  const { predictions } = await ask("/v1/predict", { model: model.id, input: lines });
  return predictions;
}

function explain(model, kind) {
  const text = model.task === "qa" ? asked() : page.text;
  return ask("/v1/explain", { model: model.id, kind, text: NO_TEXT.includes(kind) ? "" : text });
}

// A text and the question about it, as one line.
function asked() {
  return `${page.text.replace(/\s+/g, " ").trim()}\t${page.question}`;
}

async function showExplanation(result, { title, notes, picture }) {
  const place = make("div", { class: "picture", tabindex: 0, "aria-label": "Picture, to be scrolled" });
  await draw(place, picture, title);
  result.replaceChildren(place, ...notes.map(note => make("p", { class: "facts" }, note)));
}

// The picture of an explanation, or of where an answer looked.
function pictures(found) {
  if (!found) return [];
  if (found.kind !== ANSWER) return [found.answer.picture];
  return found.answer.flatMap(one => {
    const best = one.predictions?.[0];
    if (best?.attention) return [heatMap(best.tokens, best.source_tokens, best.attention)];
    if (one.probabilities && !Array.isArray(one.probabilities)) return [bars(one.probabilities)];
    return one.distributions ? [tagBars(one)] : [];
  });
}

function heatMap(rows, columns, weights) {
  const values = weights.flatMap((shares, row) => shares.map((weight, column) => ({ target: `${row + 1} ${rows[row] ?? "</s>"}`, source: `${column + 1} ${columns[column] ?? "</s>"}`, weight })));
  const axis = { field: "source", type: "ordinal", sort: null };
  return {
    data: { values }, mark: "rect", width: { step: 26 }, height: { step: 26 },
    encoding: { x: { ...axis, axis: { orient: "top", labelAngle: -50 } }, y: { ...axis, field: "target" }, color: { field: "weight", type: "quantitative", scale: { scheme: "greys", domain: [0, 1] } } },
  };
}

function bars(shares) {
  const values = Object.entries(shares).map(([label, probability]) => ({ label, probability }));
  return { data: { values }, mark: "bar", encoding: { y: { field: "label", type: "nominal", sort: null }, x: { field: "probability", type: "quantitative" } } };
}

function tagBars({ words, distributions }) {
  const values = distributions.flatMap((shares, place) => Object.entries(shares).map(([tag, probability]) => ({ word: `${place + 1} ${words[place]}`, tag, probability })));
  return { data: { values }, mark: "bar", encoding: { y: { field: "word", type: "nominal", sort: null }, x: { field: "probability", type: "quantitative" }, color: { field: "tag", type: "nominal" } } };
}
