// What is drawn of a compiled package: scopes of nodes and edges, made from `inspect --format json`.
//
// A node: {id, kind, title, note, facts, body}. Kinds: input, value, stage, loop, choice, output. `body` is a scope.
// A scope: {id, nodes, edges}; an edge: {from, to, back}. `back` edges are what a loop carries to its next step.

/** The root scope of a package's graph. */
export function graphModel(plan) {
  const values = new Map(plan.values.map((value) => [value.key, value]));
  const scope = new Scope({ id: "", kind: "root", stages: plan.stages }, plan, values);
  for (const [name, { modality, value }] of Object.entries(plan.outputs)) {
    scope.node(`output:${name}`, "output", name, modality, { Modality: modality, Value: value });
    scope.edge(scope.value(value), `output:${name}`);
  }
  return scope.drawn();
}

class Scope {
  #nodes = new Map();
  #edges = new Map();

  constructor(scope, plan, values) {
    this.id = scope.id;
    this.plan = plan;
    this.values = values;
    this.within = scope.id ? `${scope.id}/` : "";
    this.outside = new Set(); // keys of the values it reads that belong to scopes around it
    for (const stage of scope.stages) this.#stage(stage);
  }

  drawn() {
    return { id: this.id, nodes: [...this.#nodes.values()], edges: [...this.#edges.values()] };
  }

  node(name, kind, title, note, facts, body = null) {
    const id = `${this.id}|${name}`;
    if (!this.#nodes.has(id)) this.#nodes.set(id, { id, kind, title, note, facts, body });
    return id;
  }

  edge(from, to, back = false) {
    const [source, target] = [from, to].map((name) => (name.includes("|") ? name : `${this.id}|${name}`));
    this.#edges.set(`${source} ${target} ${back}`, { from: source, to: target, back });
  }

  /** The node of a value; one that comes from outside the package hangs on its input. */
  value(key) {
    const value = this.values.get(key) ?? { key, type: "unknown", produced_by: null, scope: this.id };
    const name = value.scope ? key.slice(value.scope.length + 1) : key;
    const known = this.#nodes.has(`${this.id}|value:${key}`);
    const id = this.node(`value:${key}`, "value", name, form(value), valueFacts(value));
    const input = this.plan.inputs[key.split(".")[0]];
    const own = value.scope === this.id || value.scope.startsWith(this.within);
    if (!own && (value.produced_by || input)) this.outside.add(key); // constants are shown where they are read
    if (!known && this.id === "" && value.produced_by === null && input) {
      const name = key.split(".")[0];
      const facts = { Modality: input.modality, List: yes(input.list), Required: yes(input.required) };
      this.edge(this.node(`input:${name}`, "input", name, input.modality, facts), id);
    }
    return id;
  }

  #stage(stage) {
    const name = `stage:${stage.id}`;
    const body = stage.body ? this.#body(stage) : null;
    const kind = body ? "loop" : "stage";
    this.node(name, kind, stage.id, noteOf(stage), stageFacts(stage, this.plan, this.values), body?.drawn());
    const reads = Object.values(stage.reads).filter((key) => !body || !key.startsWith(body.within));
    const each = stage.for_each ? [stage.for_each] : [];
    for (const key of [...reads, ...each, ...(body?.outside ?? [])]) this.edge(this.value(key), name);
    for (const key of Object.values(stage.outputs)) this.edge(name, this.value(key));
  }

  #body(stage) {
    const body = new Scope(stage.body, this.plan, this.values);
    const chosen = stage.reads.logits ?? stage.reads.tokens;
    if (stage.kind === "decode" && chosen) body.#choice(chosen);
    for (const [name, text] of Object.entries(stage.loop)) {
      if (name.startsWith("carry.")) body.#carry(name.slice("carry.".length), text);
    }
    return body;
  }

  #choice(key) {
    const facts = { Reads: key, "What it does": "chooses the next token, or ends the loop" };
    this.node("choice", "choice", "choose the token", null, facts);
    this.edge(this.value(key), "choice");
    for (const name of ["loop.next_token", "loop.tokens"]) {
      const chosen = `value:${this.within}${name}`;
      if (this.#nodes.has(`${this.id}|${chosen}`)) this.edge("choice", chosen, name === "loop.tokens");
    }
  }

  #carry(name, text) {
    const next = text.slice(text.lastIndexOf(", then ") + ", then ".length);
    const [from, to] = [`value:${this.within}${next}`, `value:${this.within}loop.${name}`];
    if ([from, to].every((node) => this.#nodes.has(`${this.id}|${node}`))) this.edge(from, to, true);
  }
}

/** What a stage is, on one line. */
function noteOf(stage) {
  const kinds = { run: "component", op: "op", group: null, decode: "decode loop", iterate: "loop" };
  const kind = stage.kind in kinds ? kinds[stage.kind] : stage.kind;
  const doer = stage.component ?? stage.op;
  const what = doer && doer !== stage.id ? `${kind} ${doer}` : kind;
  const each = stage.for_each ? `for each of ${stage.for_each}` : null;
  return [what, each, stage.after_choice ? "once the token is chosen" : null].filter(Boolean).join(", ");
}

/** A tensor's type and shape on one line. */
export function form({ type, dtype, shape }) {
  if (!dtype) return type === "unknown" || !type ? null : type;
  return shape ? `${dtype} [${shape.map((size) => size || "?").join(", ")}]` : dtype;
}

const yes = (value) => (value ? "yes" : "no");

function valueFacts(value) {
  return {
    Key: value.key,
    Type: value.type,
    Form: form(value),
    "Made by": value.produced_by ?? (/(^|\/)loop\./.test(value.key) ? "the loop" : "the request or the package"),
  };
}

function stageFacts(stage, plan, values) {
  const component = plan.components[stage.component];
  const port = (side, name) => component?.[side].find((found) => found.name === name);
  const inputs = Object.entries({ ...stage.inputs, ...stage.loop }).map(([name, bound]) => [
    name,
    `← ${bound}`,
    form(port("inputs", name) ?? values.get(stage.reads[bound]) ?? {}),
  ]);
  const outputs = Object.entries(stage.outputs).map(([name, key]) => [
    name,
    `→ ${key}`,
    form(port("outputs", name) ?? values.get(key) ?? {}),
  ]);
  const states = (component?.states ?? []).map((state) => [
    `state, ${state.update}`,
    `${state.tensors} tensors in ${state.layers} layers`,
    `${state.dtypes.join(", ")} ${state.shapes.join(", ")}`,
  ]);
  return {
    Kind: stage.kind,
    "For each of": stage.for_each,
    Component: stage.component,
    Model: component?.model,
    Op: stage.op,
    "State per token": component?.bytes_per_token ? `${component.bytes_per_token.toLocaleString("en")} bytes` : null,
    "Batched by": stage.batch_key.join(", ") || null,
    "Freed after it": stage.drop_after.join(", ") || null,
    ports: [...inputs, ...outputs, ...states],
  };
}
