// Elements, numbers and messages. Text is always set as text, never as HTML; styles are set as properties, so that the
// page's policy (no inline style) holds.

// make("p", { class: "note", onclick: f }, "text", child): an element. `on…` are listeners, the rest are attributes.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined));
  return element;
}

export function say(message) {
  document.getElementById("status").textContent = message;
}

export function percent(share) {
  if (share === 0) return "0 %";
  if (share < 0.0001) return "< 0.01 %";
  return `${(100 * share).toFixed(share < 0.01 ? 2 : share < 0.1 ? 1 : 0)} %`;
}

export function number(value, digits = 4) {
  if (value === null || value === undefined) return "∞";
  return value >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
}

// A token so that spaces and ends can be seen.
export function visible(token) {
  return token === "</s>" || token === "\n" ? "↵" : token.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "→");
}

// The same as an element, where the space that a word brings along is set back.
export function tokenOf(token) {
  const shown = visible(token);
  const isWord = shown.length > 1 && shown.startsWith("·");
  return make("span", { class: "token" }, isWord ? make("span", { class: "space" }, "·") : null, isWord ? shown.slice(1) : shown);
}

// A function that waits until it was not called for so long.
export function debounced(wait, call) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(call, wait);
  };
}

export function field(label, control) {
  return make("label", { class: "field" }, make("span", {}, label), control);
}

export function choice(options, chosen, onchange) {
  const select = make("select", { onchange: () => onchange(select.value) });
  for (const { value, label } of options) select.append(make("option", { value, selected: value === chosen }, label));
  return select;
}
