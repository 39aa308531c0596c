// Pictures by Vega, in the colours of the page. Its expressions are interpreted: the page's policy runs no code made of text.

import { make, number } from "./dom.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");
const PNG_SCALE = 2;
const ERRORS = 1; // of Vega's levels: its warnings are for whoever writes a specification

let loading = null;

// Load what draws; a view calls it before there is anything to draw.
export function load() {
  loading ??= import("./vega.js").then(() => window.vegaEmbed);
  return loading;
}

// Draw a specification into an element, in place of what is there.
export async function draw(place, spec, description) {
  const figure = make("figure", { role: "img", "aria-label": description });
  const tip = make("div", { class: "tip", hidden: true });
  await embed(figure, spec, DARK.matches, (handler, event, item, value) => showTip(tip, place, event, value));
  place.replaceChildren(figure, tip);
}

// Specifications below one another as one file, on white.
export async function toFile(specs, format) {
  const parts = specs.map(({ $schema, background, padding, config, ...rest }) => rest);
  const spec = parts.length === 1 ? parts[0] : { vconcat: parts, spacing: 40, resolve: { scale: { color: "independent" } } };
  const { view } = await embed(document.createElement("div"), { ...spec, background: "white" }, false);
  const blob = format === "svg" ? new Blob([await view.toSVG()], { type: "image/svg+xml" }) : await png(view);
  view.finalize();
  return blob;
}

async function png(view) {
  const canvas = await view.toCanvas(PNG_SCALE);
  return new Promise(resolve => canvas.toBlob(resolve, "image/png"));
}

async function embed(element, spec, isDark, tooltip = () => {}) {
  const vegaEmbed = await load();
  const options = { mode: "vega-lite", ast: true, actions: false, defaultStyle: false, logLevel: ERRORS, renderer: "svg", tooltip, config: config(isDark) };
  const { $schema, ...rest } = labelled(coloured(spec, isDark));
  const whole = { background: "transparent", padding: 4, ...rest };
  return vegaEmbed(element, whole, options);
}

function config(isDark) {
  const [ink, soft, line] = isDark ? ["#e4e9f0", "#9aa7b6", "#2e3743"] : ["#1c2430", "#5b6675", "#dfe3e9"];
  const text = { labelColor: ink, titleColor: soft, labelFontSize: 13, titleFontSize: 13, titleFontWeight: "normal" };
  return {
    font: "system-ui, sans-serif",
    view: { stroke: null },
    title: { color: ink, subtitleColor: soft, fontSize: 14, fontWeight: 600 },
    axis: { ...text, domainColor: soft, tickColor: soft, gridColor: line },
    legend: { ...text, orient: "bottom" },
    header: text,
    text: { color: ink },
    rule: { color: soft },
    range: { category: ["#2a7fc0", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#a08b00", "#8c8c8c"] },
  };
}

// Colours as the page has them: what begins in white begins in the colour of the page, and light and dark change places.
const LIGHT_SCHEMES = { greys: ["#ffffff", "#1c2430"], blueorange: ["#2a7fc0", "#ffffff", "#e0740a"] };
const DARK_SCHEMES = { greys: ["#1a2028", "#e4e9f0"], blueorange: ["#4fa3e0", "#1a2028", "#f59b3c"], blues: ["#1d2b3a", "#6cbcf2"] };
const DARK_COLOURS = { white: "#1a2028", "#ffffff": "#1a2028", black: "#e4e9f0", "#bbb": "#4a5665", "#fdd0a2": "#5c3a17", "#fdae6b": "#7a4a1a" };

function coloured(value, isDark) {
  if (Array.isArray(value)) return value.map(one => coloured(one, isDark));
  if (value === null || typeof value !== "object") return isDark ? (DARK_COLOURS[value] ?? value) : value;
  const { scheme, ...rest } = value;
  const range = (isDark ? DARK_SCHEMES : LIGHT_SCHEMES)[scheme];
  if (range) return { ...rest, range, interpolate: "rgb", domain: range.length === 3 ? [-1, 0, 1] : [0, 1] };
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, key === "values" ? one : coloured(one, isDark)]));
}

// Fields that are places of tokens, with the tokens as the labels of an axis, also say the token when pointed at.
function labelled(spec) {
  const { vconcat, hconcat, concat, ...own } = spec;
  for (const [name, parts] of Object.entries({ vconcat, hconcat, concat })) if (parts) own[name] = parts.map(labelled);
  if (!own.encoding || !own.data?.values || own.layer || own.transform) return own;
  let values = own.data.values;
  const tooltip = [];
  for (const channel of ["y", "x", "color", "size"]) {
    const { field, title, type, axis } = own.encoding[channel] ?? {};
    if (!field || tooltip.some(one => one.field === field)) continue;
    const labels = /^(\[.*\])\[datum\.value\]$/s.exec(axis?.labelExpr ?? "")?.[1];
    const shown = labels ? `${field}_label` : field;
    if (labels) {
      const tokens = JSON.parse(labels);
      values = values.map(row => ({ ...row, [shown]: tokens[row[field]] }));
    }
    tooltip.push({ field: shown, title: title ?? field, type: labels ? "nominal" : type });
  }
  return { ...own, data: { ...own.data, values }, encoding: { tooltip, ...own.encoding } };
}

function showTip(tip, place, event, value) {
  tip.hidden = !value || typeof value !== "object";
  if (tip.hidden) return;
  tip.replaceChildren(...Object.entries(value).map(([name, one]) => make("div", {}, make("span", {}, `${name} `), typeof one === "number" ? number(one) : String(one))));
  const box = place.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX - box.left + 14, box.width - 150)}px`;
  tip.style.top = `${event.clientY - box.top + 14}px`;
}
