// Compare: the table and the training curves of a comparison that was given at the start.

import { ask } from "./api.js";
import { choice, field, make } from "./dom.js";
import { exporting } from "./export.js";
import { page, writeLink } from "./link.js";
import { draw } from "./picture.js";

export function showCompare(view, models) {
  let isLeft = false;
  let found = null;
  let turn = 0; // of comparisons that were chosen: what comes for an earlier one is not shown
  const body = make("div", { class: "comparison" });
  const chooser = make("div", { class: "fields" });

  async function show() {
    const mine = ++turn;
    const isOver = () => isLeft || mine !== turn;
    writeLink();
    try {
      const answer = await ask(`/v1/comparisons/${encodeURIComponent(page.comparison)}`);
      if (!isOver()) await fill(answer, isOver);
    } catch (error) {
      if (!isOver()) fail(error);
    }
  }

  async function fill(answer, isOver) {
    found = answer;
    const cards = found.pictures.map(one => ({ ...one, place: make("div", { class: "picture" }) }));
    body.replaceChildren(
      make("section", { class: "card findings" }, make("h2", {}, found.title), make("p", { class: "facts" }, found.facts), make("p", {}, found.findings.join(" "))),
      make("section", { class: "card" }, make("h2", {}, "The table"), make("p", { class: "facts" }, "A click on a heading sorts by it. The best value of each column is marked."), table(found, models)),
      make("div", { class: "pair" }, cards.map(({ heading, note, place }) => make("section", { class: "card" }, make("h2", {}, heading), make("p", { class: "facts" }, note), place))),
      ...found.failed.map(({ name, error }) => make("p", { class: "card trouble" }, `${name} failed: ${error}`)),
    );
    for (const { place, spec, heading } of cards) {
      if (isOver()) return;
      await draw(place, spec, heading);
    }
  }

  async function begin() {
    const { data } = await ask("/v1/comparisons");
    if (isLeft) return;
    if (!data.length) {
      body.replaceChildren(make("p", { class: "card" }, "No comparison was given at the start: ", make("code", {}, "elman studio DIR"), " takes the directory of ", make("code", {}, "elman compare … --out DIR"), "."));
      return;
    }
    if (!data.some(one => one.id === page.comparison)) page.comparison = data[0].id;
    if (data.length > 1) {
      chooser.replaceChildren(field("Comparison", choice(data.map(({ id, title }) => ({ value: id, label: `${id}: ${title}` })), page.comparison, id => {
        page.comparison = id;
        show();
      })));
    }
    await show();
  }

  function fail(error) {
    body.replaceChildren(make("p", { class: "card trouble", role: "alert" }, error.message));
  }

  view.replaceChildren(chooser, body, exporting("compare", { specs: () => found?.pictures.map(titled) ?? [], data: () => found?.data }));
  begin().catch(fail);
  return () => {
    isLeft = true;
  };
}

function titled({ heading, spec }) {
  return { title: { text: heading, anchor: "start" }, ...spec };
}

function table({ columns, rows }, models) {
  const body = make("tbody", {}, rows.map(row => line(row, models)));
  const heads = [{ heading: "model", more_is_better: false }, ...columns].map(({ heading, more_is_better: isMore }, place) => {
    const head = make("th", { scope: "col", "aria-sort": "none" }, make("button", { type: "button", onclick: () => sort(head, body, place, isMore) }, heading));
    return head;
  });
  return make("div", { class: "scroll", tabindex: 0, "aria-label": "The table, to be scrolled" }, make("table", {}, make("thead", {}, make("tr", {}, heads)), body));
}

function line({ name, what, model, cells }, models) {
  const isWriter = models.find(one => one.id === model)?.left_to_right;
  const title = isWriter ? make("a", { href: `#write?${new URLSearchParams({ text: page.text, models: model })}`, title: "Write with it" }, name) : name;
  return make(
    "tr", {},
    make("th", { scope: "row", "data-value": name }, title, what ? make("small", {}, what) : null),
    cells.map(cell => make("td", { class: cell.is_best && "best", "data-value": cell.value }, cell.text)),
  );
}

// By a column, the best first; another click the other way round. What has no value is last, either way.
function sort(head, body, place, isMore) {
  const first = isMore ? "descending" : "ascending";
  const wanted = head.getAttribute("aria-sort") === first ? (isMore ? "ascending" : "descending") : first;
  const sign = wanted === "ascending" ? 1 : -1;
  const key = row => row.cells[place].dataset.value;
  const rows = [...body.rows].sort((a, b) => {
    const [one, other] = [key(a), key(b)];
    if (one === undefined || other === undefined) return (one === undefined) - (other === undefined);
    return sign * (place ? one - other : one.localeCompare(other));
  });
  for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", wanted);
  body.append(...rows);
}
