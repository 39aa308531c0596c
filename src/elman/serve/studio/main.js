// The page: which view is shown, and the models there are.

import { ApiError, ask, setKey } from "./api.js";
import { make, say } from "./dom.js";
import { page, readLink, setAddress, writeLink } from "./link.js";
import { showWrite } from "./write.js";

const SHOW = {
  write: async () => showWrite,
  look: async () => drawing((await import("./look.js")).showLook),
  compare: async () => drawing((await import("./compare.js")).showCompare),
};
// A view that draws: what it draws with is loaded while it asks for what there is to draw.
async function drawing(showView) {
  (await import("./picture.js")).load().catch(() => {}); // drawing says it again
  return showView;
}

const view = document.getElementById("view");
let models = null;
let leave = () => {};

async function show() {
  leave();
  leave = () => {};
  readLink();
  say("");
  try {
    const wanted = page.view;
    const showing = SHOW[wanted](); // while the models are asked for
    models ??= (await ask("/v1/models")).data;
    const showView = await showing;
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
