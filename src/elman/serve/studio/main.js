// The page: which view is shown, and the models there are.

import { ApiError, ask, setKey } from "./api.js";
import { make, say } from "./dom.js";
import { page, readLink, setAddress, writeLink } from "./link.js";
import { showWrite } from "./write.js";

const SHOW = {
  write: async () => showWrite,
  look: async () => (await import("./look.js")).showLook,
  compare: async () => (await import("./compare.js")).showCompare,
};
const view = document.getElementById("view");
let models = null;
let leave = () => {};

async function show() {
  leave();
  leave = () => {};
  readLink();
  say("");
  try {
    models ??= (await ask("/v1/models")).data;
    const wanted = page.view;
    const showView = await SHOW[wanted]();
    if (wanted === page.view) leave = showView(view, models) ?? (() => {});
    writeLink();
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) askForKey();
    else view.replaceChildren(make("p", { class: "card trouble", role: "alert" }, error.message));
  }
}

function askForKey() {
  const input = make("input", { type: "password", autocomplete: "current-password", required: true, "aria-label": "Key" });
  const submit = event => {
    event.preventDefault();
    setKey(input.value.trim());
    show();
  };
  view.replaceChildren(make("form", { class: "card", onsubmit: submit }, make("p", {}, "This server wants its key."), make("div", { class: "actions" }, input, make("button", { class: "first" }, "Go on"))));
  input.focus();
}

addEventListener("hashchange", show);
document.querySelector("nav").addEventListener("click", setAddress); // what is left can be gone back to
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.view !== "write" && show());
show();
