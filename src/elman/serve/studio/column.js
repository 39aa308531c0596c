// One model in Write: what may follow the text, and what each token of the text cost.

import { ask } from "./api.js";
import { debounced, make, number, percent, tokenOf, visible } from "./dom.js";
import { page } from "./link.js";
import { States } from "./states.js";

const HOT_NATS = 10; // a token that costs so much is as hot as it gets
const SCORE_WAIT = 200; // ms after the last key
const WORDS = ["word", "space"]; // units that are typed letter by letter

export class Column {
  // onTake(text): somebody took a word; onBack(text): somebody wants the text to end here.
  constructor(model, { onTake, onBack }) {
    this.model = model;
    this.onTake = onTake;
    this.onBack = onBack;
    this.states = new States(model.id);
    this.next = null; // as /v1/next gave it
    this.from = ""; // the text that it follows
    this.started = ""; // what is typed already of the word that it finishes
    this.score = null; // as /v1/score gave it
    this.work = Promise.resolve();
    this.isPlanned = false;
    this.rescore = debounced(SCORE_WAIT, () => this.showScore());
    this.facts = make("p", { class: "facts" });
    this.words = make("ol", { class: "words", "aria-label": `What may follow, by ${model.id}`, onkeydown: event => this.move(event) });
    this.rest = make("p", { class: "facts rest" });
    this.heat = make("p", { class: "heat", "aria-label": `The text, coloured by surprisal of ${model.id}` });
    this.trouble = make("p", { class: "trouble", role: "alert", hidden: true });
    const what = [model.model, model.units, `${number(model.parameters, 3)} parameters`].filter(Boolean).join(" · ");
    this.element = make(
      "section",
      { class: "card column", "data-model": model.id, "aria-label": model.id },
      make("h2", {}, model.id, make("small", {}, what)),
      this.trouble, this.words, this.rest,
      make("h3", {}, "Surprisal"), this.facts, this.heat,
    );
  }

  // The text or the sliders have changed. What is asked for while another answer is awaited is asked once, at the end.
  refresh({ keeps = false } = {}) {
    this.rescore();
    this.keeps ||= keeps;
    if (this.isPlanned) return this.work;
    this.isPlanned = true;
    return this.do(async () => {
      this.isPlanned = false;
      await this.showNext();
    });
  }

  // One thing after the other: each leaves the states as the next one finds them.
  do(job) {
    this.work = this.work.then(async () => {
      try {
        await job();
        this.trouble.hidden = true;
      } catch (error) {
        this.trouble.textContent = error.message;
        this.trouble.hidden = false;
      }
    });
    return this.work;
  }

  async showNext() {
    const text = page.text;
    const session = await this.states.at(text);
    if (this.keeps) await this.states.keep(text);
    this.keeps = false;
    const found = await this.ask({ session });
    const finished = found.after_unknown ? await this.finish(text) : null;
    if (text !== page.text) return;
    [this.next, this.from, this.started] = finished ?? [found, text, ""];
    this.drawWords();
  }

  ask(more) {
    const shaping = { temperature: page.temperature, top_k: page.topK || null, top_p: page.topP };
    return ask("/v1/next", { k: page.rows, ...shaping, ...more });
  }

  // A word that the model does not know may be one that is not typed to its end: words that begin so, if there are any.
  async finish(text) {
    const word = /[\p{L}\p{N}_]+$/u.exec(text)?.[0];
    if (!word || !WORDS.includes(this.model.units)) return null;
    const before = text.slice(0, -word.length);
    await this.states.keep(before);
    const found = await this.ask({ session: await this.states.at(before), prefix: word });
    const apart = found.tokens.filter(row => row.token.startsWith(" ")); // not those that are written without a space
    if (before.endsWith(" ") && apart.length) found.tokens = apart;
    return found.tokens.length ? [found, before, word] : null;
  }

  drawWords() {
    const { tokens, entropy } = this.next;
    const highest = Math.max(...tokens.map(row => Math.max(row.shaped, row.probability)), 1e-12);
    const focused = [...this.words.querySelectorAll("button")].indexOf(document.activeElement);
    this.words.replaceChildren(...tokens.map((row, place) => this.word(row, place, highest)));
    if (focused >= 0) this.words.querySelectorAll("button")[Math.min(focused, tokens.length - 1)]?.focus();
    this.rest.textContent = this.started ? this.aboutFinishing(tokens) : this.aboutOthers(tokens, entropy);
  }

  aboutFinishing(tokens) {
    return `words that begin with “${this.started}”, together ${percent(sumOf(tokens))}`;
  }

  aboutOthers(tokens, entropy) {
    const others = this.model.vocab_size - tokens.length;
    const share = Math.max(0, 1 - sumOf(tokens));
    const rest = others > 0 ? `${others.toLocaleString("en")} others together ${percent(share < 5e-6 ? 0 : share)} · ` : "";
    return `${rest}entropy ${number(entropy, 3)} nats`;
  }

  word(row, place, highest) {
    const isShaped = Math.abs(row.shaped - row.probability) > 1e-6;
    const bar = make("span", { class: "bar" }, make("i"), isShaped ? make("b") : null);
    bar.style.setProperty("--shaped", row.shaped / highest);
    bar.style.setProperty("--raw", row.probability / highest);
    const button = make(
      "button",
      {
        type: "button",
        class: row.shaped ? "word" : "word cut",
        tabindex: place ? -1 : 0,
        title: `probability ${percent(row.probability)}, ${percent(row.shaped)} as shaped`,
        "aria-label": `${visible(row.token).replace(/^·(?=.)/, "")}, ${percent(row.shaped)}`,
        onclick: () => this.take(row.id),
      },
      tokenOf(row.token), bar, make("span", { class: "share" }, percent(row.shaped)),
    );
    return make("li", {}, button);
  }

  take(token) {
    return this.do(async () => {
      const { from } = this;
      await this.states.keep(from);
      this.onTake(await this.states.take(from, token), from);
    });
  }

  // Up and down go through the words, a digit takes one of the first nine.
  move(event) {
    const buttons = [...this.words.querySelectorAll("button")];
    const here = buttons.indexOf(document.activeElement);
    const steps = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      buttons[Math.max(0, Math.min(buttons.length - 1, here + steps[event.key]))].focus();
    } else if (/^[1-9]$/.test(event.key) && !event.ctrlKey && !event.altKey && !event.metaKey) {
      buttons[Number(event.key) - 1]?.click();
    }
  }

  async showScore() {
    const text = page.text;
    if (!text.trim()) {
      this.score = null;
      this.facts.textContent = "What each word costs is shown here, as soon as there is a text.";
      this.heat.replaceChildren();
      return;
    }
    try {
      const found = await ask("/v1/score", { model: this.model.id, text });
      if (text !== page.text) return;
      this.score = found;
      this.drawScore(text);
    } catch (error) {
      this.facts.textContent = error.message;
    }
  }

  drawScore(text) {
    const { perplexity, bits_per_byte, num_tokens, unknown } = this.score;
    this.facts.textContent =
      `perplexity ${number(perplexity)} · ${number(bits_per_byte, 3)} bits/byte · ${num_tokens} tokens` +
      (unknown ? `, ${unknown} unknown` : "");
    const parts = [];
    let place = 0;
    for (const row of this.score.tokens) {
      if (row.start > place) parts.push(text.slice(place, row.start));
      const isEnd = row.token === "</s>" || row.token === "\n";
      const shown = isEnd ? "↵" : text.slice(row.start, row.end);
      const span = make(
        "span",
        {
          class: ["token", row.unknown && "unknown", isEnd && "end"].filter(Boolean).join(" "),
          title: `${visible(row.token)}: ${row.nats === null ? "impossible" : `${number(row.nats, 3)} nats`}${row.unknown ? ", unknown" : ""}`,
          onclick: () => this.onBack(text.slice(0, row.start).trimEnd()),
        },
        shown,
      );
      span.style.setProperty("--heat", Math.min(1, (row.nats ?? HOT_NATS) / HOT_NATS));
      parts.push(span, isEnd && row.end > row.start ? "\n" : "");
      place = Math.max(place, row.end);
    }
    this.heat.replaceChildren(...parts);
  }
}

function sumOf(tokens) {
  return tokens.reduce((sum, row) => sum + row.shaped, 0);
}
