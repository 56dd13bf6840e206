// The stage graph as SVG, and what a click on a node tells.

import { getAdmin } from "./api.js";
import { byId, bytes, el, figure, svg } from "./dom.js";
import { layout } from "./graph_layout.js";
import { graphModel } from "./graph_model.js";

const ZOOMS = [0.25, 0.4, 0.55, 0.7, 0.85, 1, 1.25, 1.5, 2];
const LEAST = 0.7; // of the natural size, so that labels stay readable when everything is made to fit
const TITLE = "600 13px system-ui, sans-serif";
const NOTE = "11px ui-monospace, monospace";

const pen = document.createElement("canvas").getContext("2d");

function widthOf(text, font) {
  pen.font = font;
  return pen.measureText(text ?? "").width;
}

/** The size of a node by its texts; of loops, the header. */
function measure(node) {
  const width = Math.max(widthOf(node.title, TITLE), widthOf(node.note, NOTE)) + 28;
  return { width: Math.max(56, Math.ceil(width)), height: node.note ? 42 : 28 };
}

export class GraphView {
  #zoom = 1;
  #size = { width: 1, height: 1 };
  #shown = null;

  constructor() {
    this.drawing = byId("drawing");
    this.detail = byId("detail");
    for (const button of document.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => this.#zoomBy(button.dataset.zoom));
    }
  }

  /** Draw the graph of a package, unless it is drawn. */
  async show(name) {
    if (!name || this.#shown === name) return;
    this.#shown = name;
    byId("graph-title").textContent = name;
    this.drawing.replaceChildren(el("p", { class: "hint" }, "…"));
    this.detail.replaceChildren();
    try {
      const plan = await getAdmin(`models/${encodeURIComponent(name)}/graph`);
      if (this.#shown === name) this.draw(plan);
    } catch (problem) {
      this.#shown = null;
      this.drawing.replaceChildren(el("p", { class: "problem", role: "alert" }, problem.message));
    }
  }

  /** Draw a plan, the answer of `inspect --format json`. */
  draw(plan) {
    const { bytes_per_token: perToken, context_length: context } = plan.memory;
    const memory = perToken ? `${bytes(perToken)} of state per token` : null;
    const length = context ? `context of ${figure(context)}` : null;
    byId("graph-title").textContent = [plan.name, memory, length].filter(Boolean).join(" · ");
    const placed = layout(graphModel(plan), measure);
    const { width, height } = placed;
    this.#size = { width, height };
    const label = `stages of ${plan.name}`;
    this.picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
    this.picture.append(arrowHeads(), this.#scope(placed));
    this.drawing.replaceChildren(this.picture);
    this.detail.replaceChildren(el("p", { class: "hint" }, "Choose a node to see its ports and shapes."));
    this.#zoomBy("fit");
  }

  #scope(placed) {
    const edges = placed.edges.map(({ edge, points }) =>
      svg("path", { class: edge.back ? "edge back" : "edge", d: edge.back ? corners(points) : curve(points) }));
    return svg("g", {}, edges, placed.nodes.map((box) => this.#node(box)));
  }

  #node(box) {
    const { node, x, y, width, height, inner } = box;
    const label = [node.kind, node.title, node.note].filter(Boolean).join(", ");
    const group = svg("g", { class: `node ${node.kind}`, transform: `translate(${x} ${y})` });
    const open = () => this.#select(group, node);
    const button = svg("g", {
      class: "handle",
      tabindex: 0,
      role: "button",
      "aria-label": label,
      onclick: open,
      onkeydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        open();
      },
    });
    const round = { input: 14, output: 14, value: 14, choice: 6, stage: 6, loop: 10 }[node.kind];
    button.append(svg("rect", { width, height, rx: round }));
    button.append(svg("text", { class: "title", x: width / 2, y: 18 }, node.title));
    if (node.note) button.append(svg("text", { class: "note", x: width / 2, y: 33 }, node.note));
    group.append(button);
    if (inner) group.append(svg("g", { transform: `translate(${inner.x} ${inner.y})` }, this.#scope(inner)));
    return group;
  }

  #select(group, node) {
    this.picture.querySelector(".selected")?.classList.remove("selected");
    group.classList.add("selected");
    const { ports = [], ...facts } = node.facts;
    const rows = Object.entries(facts).filter(([, value]) => value);
    const list = el("dl", {}, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))]));
    const table = el("table", {}, ports.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell ?? "")))));
    this.detail.replaceChildren(el("h3", {}, node.title), list, ...(ports.length ? [table] : []));
  }

  #zoomBy(how) {
    if (!this.picture) return;
    const room = this.drawing.clientWidth - 4;
    if (how === "fit") this.#zoom = Math.max(LEAST, Math.min(1, room > 0 ? room / this.#size.width : 1));
    if (how === "in") this.#zoom = ZOOMS.find((zoom) => zoom > this.#zoom + 0.01) ?? this.#zoom;
    if (how === "out") this.#zoom = ZOOMS.findLast((zoom) => zoom < this.#zoom - 0.01) ?? this.#zoom;
    this.picture.setAttribute("width", String(Math.round(this.#size.width * this.#zoom)));
    this.picture.setAttribute("height", String(Math.round(this.#size.height * this.#zoom)));
  }
}

function arrowHeads() {
  const shape = { viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" };
  const head = (id, name) =>
    svg("marker", { ...shape, id, class: name }, svg("path", { d: "M0 0.5 L8 4 L0 7.5 z" }));
  return svg("defs", {}, head("head", "head"), head("head-back", "head back"));
}

/** A smooth line down through the points. */
function curve(points) {
  const [[x, y], ...rest] = points;
  let [fromX, fromY] = [x, y];
  const parts = rest.map(([toX, toY]) => {
    const bend = (toY - fromY) / 2;
    const part = toX === fromX ? `V${toY}` : `C${fromX} ${fromY + bend} ${toX} ${toY - bend} ${toX} ${toY}`;
    [fromX, fromY] = [toX, toY];
    return part;
  });
  return `M${x} ${y}${parts.join("")}`;
}

/** Straight pieces with round corners. */
function corners(points) {
  const parts = points.slice(1, -1).map(([x, y], index) => {
    const [before, after] = [towards([x, y], points[index]), towards([x, y], points[index + 2])];
    return `L${before.join(" ")}Q${x} ${y} ${after.join(" ")}`;
  });
  return `M${points[0].join(" ")}${parts.join("")}L${points.at(-1).join(" ")}`;
}

/** The point where the corner at a point begins, on the way to another. */
function towards([x, y], [toX, toY]) {
  const length = Math.hypot(toX - x, toY - y) || 1;
  const share = Math.min(8, length / 2) / length;
  return [x + (toX - x) * share, y + (toY - y) * share];
}
