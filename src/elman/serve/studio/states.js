// The states of one model on the server: one that is read on as somebody types, and some that are kept to go back to.
// A text whose beginning was read is read on from there; a text that was kept is not read again.

import { ApiError, ask } from "./api.js";

const MAX_KEPT = 16;

export class States {
  constructor(model) {
    this.model = model;
    this.live = null; // {id, text}
    this.kept = new Map(); // text -> id
  }

  // The id of a session that has read a text.
  async at(text) {
    return this.again(() => this.find(text));
  }

  // Keep the state after a text, so that going back to it costs nothing.
  async keep(text) {
    return this.again(async () => {
      if (this.kept.has(text)) return;
      const { id } = await ask(`/v1/sessions/${await this.find(text)}/branch`, {});
      this.kept.set(text, id);
      const [oldest] = this.kept.keys();
      if (this.kept.size > MAX_KEPT) await this.close(oldest);
    });
  }

  // Read one token more. -> the text after it
  async take(text, token) {
    return this.again(async () => {
      const id = await this.find(text);
      if (this.live?.id !== id) await this.replaceLive(id);
      this.live = await ask(`/v1/sessions/${this.live.id}/advance`, { tokens: [token] });
      return this.live.text;
    });
  }

  async find(text) {
    if (this.kept.has(text)) return this.kept.get(text);
    if (!this.live || !text.startsWith(this.live.text)) {
      const before = [...this.kept.keys()].filter(one => text.startsWith(one)).sort((a, b) => b.length - a.length)[0];
      await this.replaceLive(before === undefined ? null : this.kept.get(before), text);
    }
    const rest = text.slice(this.live.text.length);
    if (rest) this.live = await ask(`/v1/sessions/${this.live.id}/advance`, { text: rest });
    return this.live.id;
  }

  // A new live session: a branch of another one, or one that reads a text from its beginning.
  async replaceLive(id, text = "") {
    const old = this.live;
    this.live = id ? await ask(`/v1/sessions/${id}/branch`, {}) : await ask("/v1/sessions", { model: this.model, text });
    if (old) await ask(`/v1/sessions/${old.id}`, undefined, { method: "DELETE" });
  }

  async close(text) {
    const id = this.kept.get(text);
    this.kept.delete(text);
    await ask(`/v1/sessions/${id}`, undefined, { method: "DELETE" });
  }

  // The server keeps so many sessions and was perhaps started anew: what it has forgotten is read again.
  async again(call) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== "session_not_found") throw error;
      this.live = null;
      this.kept.clear();
      return call();
    }
  }
}
