// What a model answered, by what there is in the answer: a translation, tags, labels, filled gaps or an answer.

import { make, number, percent, visible } from "./dom.js";

const HUES = 8; // colours of tags
const HOT_SHARE = 4; // times as much attention as if all words had the same: as hot as it gets

export function showAnswer(place, answers) {
  place.replaceChildren(...answers.map(answer => make("div", { class: "answer" }, shown(answer))));
}

function shown(answer) {
  if (answer.predictions) return answer.predictions.map(one => translation(answer.source, one));
  if (answer.tags) return tagged(answer);
  if (answer.gaps) return filled(answer);
  return labelled(answer);
}

// Two lines of tokens. Whichever token is pointed at or focused shows where it looked, or who looked at it.
function translation(source, { text, tokens, nats, source_tokens: sources, attention }) {
  const facts = make("p", { class: "facts" }, `${number(nats, 3)} nats`);
  if (!attention) return make("div", {}, make("p", { class: "big" }, text), facts);
  const rows = attention.map((_, row) => token(tokens[row] ?? "</s>"));
  const columns = attention[0].map((_, column) => token(sources[column] ?? "</s>"));
  const note = make("p", { class: "facts", "aria-live": "polite" }, "Point at a token, or go through them with the arrow keys, to see where it looked.");
  const look = (mine, others, weights) => (mine === null ? [...rows, ...columns] : others).forEach((one, place) => {
    one.style.setProperty("--heat", mine === null ? 0 : weights[place]);
  });
  const tell = (mine, others, weights) => {
    look(null);
    for (const one of [...rows, ...columns]) one.classList.toggle("looking", one === mine);
    look(mine, others, weights);
    const best = weights.indexOf(Math.max(...weights));
    note.textContent = `${mine.textContent} – most: ${others[best].textContent}, ${percent(weights[best])}`;
  };
  watch(rows, place => tell(rows[place], columns, attention[place]));
  watch(columns, place => tell(columns[place], rows, attention.map(shares => shares[place])));
  const line = (name, items) => make("div", { class: "line" }, make("h3", {}, name), make("p", { class: "tokens", role: "group", "aria-label": name }, items));
  return make("div", { class: "translation" }, make("p", { class: "big" }, text), line("Read", columns), line("Written", rows), note, facts);
}

function token(text) {
  return make("span", { class: "token", tabindex: -1 }, visible(text));
}

// One of some tokens is in the order of tabs; arrows go from one to the next.
function watch(items, tell) {
  items.forEach((item, place) => {
    item.tabIndex = place ? -1 : 0;
    item.addEventListener("mouseenter", () => tell(place));
    item.addEventListener("focus", () => tell(place));
    item.addEventListener("click", () => tell(place));
    item.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) items[place + step]?.focus();
    });
  });
}

function tagged({ words, tags, probabilities, distributions }) {
  const names = [...new Set(tags)].sort();
  return make("p", { class: "tagged" }, words.map((word, place) => {
    const others = Object.entries(distributions[place] ?? {}).sort((a, b) => b[1] - a[1]).slice(0, 4);
    const title = others.map(([tag, share]) => `${tag} ${percent(share)}`).join(", ");
    const share = probabilities[place];
    const tag = make("small", { class: tags[place] === "O" ? "hue-none" : `hue-${names.indexOf(tags[place]) % HUES}` }, tags[place]);
    if (share !== undefined && share < 0.7) tag.classList.add("unsure");
    return make("span", { class: "tag", title }, make("span", {}, word), tag);
  }));
}

function filled({ text, gaps }) {
  return [make("p", { class: "big" }, text), ...gaps.map((gap, place) => make("div", {}, make("h3", {}, `Gap ${place + 1}`), shares(gap.map(one => [visible(one.token), one.probability]))))];
}

function labelled({ label, answer, probabilities, words, attention }) {
  const said = make("p", { class: "big" }, String(label ?? answer ?? ""));
  const all = probabilities ? shares(Object.entries(probabilities).slice(0, 12)) : null;
  if (!words || !attention || Array.isArray(attention[0])) return [said, all];
  const even = 1 / words.length; // as much for every word
  const read = words.map((word, place) => {
    const one = make("span", { class: "token", title: percent(attention[place] ?? 0) }, word);
    one.style.setProperty("--heat", Math.min(1, (attention[place] ?? 0) / even / HOT_SHARE));
    return one;
  });
  return [said, all, make("h3", {}, "Where it looked"), make("p", { class: "tokens" }, read)];
}

function shares(rows) {
  return make("ol", { class: "words" }, rows.map(([name, share]) => {
    const bar = make("span", { class: "bar" }, make("i"));
    bar.style.setProperty("--shaped", share);
    return make("li", {}, make("span", { class: "word" }, make("span", { class: "token" }, name), bar, make("span", { class: "share" }, percent(share))));
  }));
}
