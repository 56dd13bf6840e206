// A small chart of the last two minutes, one line per series, with the values of now beside it.

import { el, figure, svg } from "./dom.js";

const POINTS = 120;
const WIDTH = 240;
const HEIGHT = 64;

export class Chart {
  #points = [];

  constructor({ id, title, series }) {
    this.series = series;
    this.lines = series.map((_, index) => svg("path", { class: `line s${index + 1}` }));
    this.now = series.map(() => document.createTextNode("–"));
    this.note = el("p", { class: "hint" });
    const legend = series.map((name, index) => {
      const swatch = el("span", { class: `swatch s${index + 1}` });
      return el("li", {}, swatch, el("span", {}, name), " ", el("b", { "data-series": name }, this.now[index]));
    });
    const frame = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title };
    const floor = svg("line", { class: "floor", x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 });
    const picture = svg("svg", frame, floor, this.lines);
    this.most = el("span", { class: "most" });
    this.element = el(
      "figure",
      { class: "gauge", id: `gauge-${id}` },
      el("figcaption", {}, title),
      el("ul", { class: "legend" }, legend),
      el("div", { class: "plot" }, picture, this.most),
      this.note,
    );
  }

  /** Add the values of now, by name of series; null leaves a gap. */
  add(values, note) {
    this.#points.push(this.series.map((name) => values[name]));
    if (this.#points.length > POINTS) this.#points.shift();
    this.series.forEach((name, index) => (this.now[index].data = figure(values[name])));
    this.note.textContent = note;
    this.#draw();
  }

  clear() {
    this.#points = [];
    this.note.textContent = "";
    for (const now of this.now) now.data = "–";
    this.#draw();
  }

  #draw() {
    const most = Math.max(1, ...this.#points.flat().filter((value) => value !== null));
    this.most.textContent = this.#points.length ? `most ${figure(most)}` : "";
    const right = POINTS - this.#points.length;
    const x = (index) => (((right + index) * WIDTH) / (POINTS - 1)).toFixed(1);
    const y = (value) => (HEIGHT - 2 - (value / most) * (HEIGHT - 8)).toFixed(1);
    this.lines.forEach((line, series) => {
      let pen = "M";
      const parts = this.#points.map((point, index) => {
        if (point[series] === null) {
          pen = "M";
          return "";
        }
        const part = `${pen}${x(index)} ${y(point[series])}`;
        pen = "L";
        return part;
      });
      line.setAttribute("d", parts.join(""));
    });
  }
}
