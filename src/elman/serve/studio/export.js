// The row of buttons below every view: the link that reproduces it, its picture and its data.

import { make, say } from "./dom.js";
import { link } from "./link.js";

// specs(): the pictures, as Vega-Lite; data(): what is written as JSON.
export function exporting(name, { specs, data }) {
  const act = call => async () => {
    try {
      say(await call());
    } catch (error) {
      say(error.message);
    }
  };
  return make(
    "div", { class: "actions export" },
    make("button", { type: "button", onclick: act(copyLink) }, "Copy link"),
    make("button", { type: "button", onclick: act(() => savePicture(name, specs(), "svg")) }, "Picture (SVG)"),
    make("button", { type: "button", onclick: act(() => savePicture(name, specs(), "png")) }, "Picture (PNG)"),
    make("button", { type: "button", onclick: act(() => saveData(name, data())) }, "Data (JSON)"),
  );
}

async function copyLink() {
  const address = location.href.split("#")[0] + link();
  try {
    await navigator.clipboard.writeText(address);
    return "The link is copied.";
  } catch {
    return `The link is the address of this page: ${address}`;
  }
}

async function savePicture(name, specs, format) {
  if (!specs.length) return "There is no picture yet.";
  const { toFile } = await import("./picture.js");
  save(`elman-${name}.${format}`, await toFile(specs, format));
  return `elman-${name}.${format} is saved.`;
}

function saveData(name, found) {
  if (!found) return "There is nothing to save yet.";
  save(`elman-${name}.json`, new Blob([JSON.stringify(found, null, 1)], { type: "application/json" }));
  return `elman-${name}.json is saved.`;
}

function save(name, blob) {
  const address = URL.createObjectURL(blob);
  const anchor = make("a", { href: address, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
