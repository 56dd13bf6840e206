// Live figures of a package's scheduler and memory: what they were each second, derived from /admin/status.

import { getAdmin } from "./api.js";
import { Chart } from "./chart.js";
import { byId, bytes, figure } from "./dom.js";

const EVERY = 1000; // milliseconds between looks, while somebody looks

const GAUGES = [
  { id: "tokens", title: "Tokens per second", series: ["generated", "prompt"] },
  { id: "queue", title: "Requests", series: ["running", "queue"] },
  { id: "rows", title: "Rows per decode step", series: ["rows"] },
  { id: "pages", title: "Pages in use", series: ["arena", "host", "disk"] },
  { id: "prefix", title: "Prefix tokens reused per second", series: ["cached"] },
];

/** What changed between two snapshots of one engine, by name of series; null is what cannot be said. */
export function figures(before, now) {
  const span = before ? now.uptime_seconds - before.uptime_seconds : 0;
  const rate = (read) => {
    const value = read(now);
    return span > 0 && value !== undefined ? Math.max(0, value - (read(before) ?? 0)) / span : null;
  };
  return {
    generated: rate((stats) => stats.tokens?.generated),
    prompt: rate((stats) => stats.tokens?.prompt),
    cached: rate((stats) => stats.prefix?.hit_tokens),
    queue: now.queue ?? null,
    running: now.running ?? null,
    rows: span > 0 ? meanRows(before.rows?.decode ?? {}, now.rows?.decode ?? {}) : null,
    arena: now.pages?.arena?.used ?? null,
    host: now.pages?.host?.used ?? null,
    disk: now.pages?.disk?.used ?? null,
  };
}

/** Mean number of rows of the decode runs between two counts by number of rows; 0 when there were none. */
function meanRows(before, now) {
  let runs = 0;
  let rows = 0;
  for (const [size, count] of Object.entries(now)) {
    const more = count - (before[size] ?? 0);
    runs += more;
    rows += more * Number(size);
  }
  return runs > 0 ? rows / runs : 0;
}

export class Gauges {
  #timer = null;
  #last = null;
  #name = null;

  constructor(model) {
    this.model = model;
    this.title = byId("load-title");
    this.charts = GAUGES.map((gauge) => ({ ...gauge, chart: new Chart(gauge) }));
    byId("gauges").append(...this.charts.map(({ chart }) => chart.element));
    document.addEventListener("visibilitychange", () => this.#schedule(0));
  }

  /** Begin or end to look. */
  watch(on) {
    this.on = on;
    this.#schedule(0);
  }

  #schedule(delay) {
    clearTimeout(this.#timer);
    this.#timer = this.on && !document.hidden ? setTimeout(() => this.#look(), delay) : null;
  }

  async #look() {
    const name = this.model();
    try {
      const { models } = await getAdmin("status");
      this.#take(models.find((found) => found.name === name));
    } catch (problem) {
      this.title.textContent = problem.message;
    }
    this.#schedule(EVERY);
  }

  #take(found) {
    if (found?.name !== this.#name || !found?.engine) this.#restart(found?.name ?? null);
    if (!found?.engine) {
      this.title.textContent = found ? `${found.name} · ${found.state}; its first request loads it` : "no package";
      return;
    }
    const now = found.engine;
    if (this.#last && now.uptime_seconds < this.#last.uptime_seconds) this.#restart(found.name);
    const shown = figures(this.#last, now);
    for (const { chart, id } of this.charts) chart.add(shown, noteOf(id, now));
    this.#last = now;
    this.title.textContent = [found.name, found.state, ...totals(now)].join(" · ");
  }

  #restart(name) {
    this.#name = name;
    this.#last = null;
    for (const { chart } of this.charts) chart.clear();
  }
}

/** What happened since the engine started, in words. */
function totals({ uptime_seconds: up, requests: { submitted = 0, failed = 0, cancelled = 0 } = {} }) {
  return [
    `up ${figure(Math.round(up))} s`,
    `${figure(submitted)} request${submitted === 1 ? "" : "s"}`,
    ...(failed ? [`${figure(failed)} failed`] : []),
    ...(cancelled ? [`${figure(cancelled)} cancelled`] : []),
  ];
}

/** The line below a chart. */
function noteOf(id, { pages, prefix, preemptions }) {
  if (id === "pages" && pages?.arena) {
    const { used, free } = pages.arena;
    return `arena ${figure(used)} of ${figure(used + free)}, host ${bytes(pages.host?.bytes ?? 0)}`;
  }
  if (id === "prefix") {
    if (!prefix) return "no prefix cache";
    const looks = prefix.hits + prefix.misses;
    return looks ? `${figure(prefix.hits)} of ${figure(looks)} look-ups hit` : "no look-ups yet";
  }
  if (id === "queue") {
    const times = (preemptions?.swap ?? 0) + (preemptions?.recompute ?? 0);
    return times ? `${figure(times)} preemptions` : "";
  }
  return "";
}

