// Building elements. Text always becomes text nodes: nothing here, or anywhere on this page, parses markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, listeners (`onclick`) and children; strings become text. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** A number as people read it: at most three significant places below a hundred, whole above. */
export function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) || Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return value.toLocaleString("en", { maximumSignificantDigits: 3 });
}

/** Bytes with a binary unit. */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  for (; value >= 1024 && step < units.length - 1; step += 1) value /= 1024;
  return `${figure(value)} ${units[step]}`;
}

/** Seconds, or milliseconds below one. */
export const seconds = (value) => (value < 1 ? `${Math.round(value * 1000)} ms` : `${figure(value)} s`);
