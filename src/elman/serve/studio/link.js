// What the page shows, and the link that reproduces it: the part of the address behind #, which no server is sent.

export const VIEWS = ["write", "look", "compare"];
export const MAX_MODELS = 4; // side by side
const ADDRESS_WAIT = 400; // ms

export const page = {
  view: "write",
  text: "",
  models: [], // of Write, by id
  temperature: 1,
  topK: 0, // 0 is all
  topP: 1,
  rows: 12,
  branches: [],
  model: "", // of Look
  kind: "",
  question: "",
  comparison: "",
};

// What of it each view depends on. t: texts, n: numbers, l: lists.
const PARTS = {
  write: { text: "t", models: "l", temperature: "n", topK: "n", topP: "n", rows: "n", branches: "l" },
  look: { text: "t", model: "t", kind: "t", question: "t" },
  compare: { comparison: "t" },
};
const DEFAULTS = structuredClone(page);

export function link(view = page.view) {
  const query = new URLSearchParams();
  for (const [name, kind] of Object.entries(PARTS[view])) {
    if (kind === "l") for (const one of page[name]) query.append(name, one);
    else if (page[name] !== DEFAULTS[name]) query.set(name, page[name]);
  }
  return `#${view}${query.size ? `?${query}` : ""}`;
}

// Take over what the address says; what it does not mention of a view is as at first.
export function readLink() {
  const [view, text = ""] = location.hash.slice(1).split(/\?(.*)/s);
  page.view = VIEWS.includes(view) ? view : "write";
  if (!text) return;
  const query = new URLSearchParams(text);
  for (const [name, kind] of Object.entries(PARTS[page.view])) {
    if (kind === "l") page[name] = query.getAll(name);
    else if (!query.has(name)) page[name] = DEFAULTS[name];
    else page[name] = kind === "n" && Number.isFinite(Number(query.get(name))) ? Number(query.get(name)) : query.get(name);
  }
}

// The address follows the page, and so do the links to the other views.
export function writeLink() {
  for (const anchor of document.querySelectorAll("nav a")) {
    const view = VIEWS.find(name => anchor.getAttribute("href").startsWith(`#${name}`));
    anchor.setAttribute("href", link(view));
    if (view === page.view) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  waiting ??= setTimeout(setAddress, ADDRESS_WAIT);
}

// Browsers refuse an address that changes with every key of a fast typist.
let waiting = null;

export function setAddress() {
  clearTimeout(waiting);
  waiting = null;
  if (location.hash !== link()) history.replaceState(null, "", link());
}
