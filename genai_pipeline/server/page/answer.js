// One answer on the page while it comes: reasoning, text, tool calls, figures, or why there is none.

import { el, figure, seconds } from "./dom.js";

/** An article of the conversation. */
export function message(role, text = "") {
  return el("article", { class: `message ${role}` }, el("h2", {}, role), el("div", { class: "text" }, text));
}

export class Answer {
  #text = document.createTextNode("");
  #thought = document.createTextNode("");
  #calls = [];
  #started = performance.now();
  #first = null;
  #last = null;

  constructor(model) {
    this.element = message("assistant");
    this.element.querySelector("h2").textContent = model;
    this.element.querySelector(".text").append(this.#text);
    this.element.classList.add("coming");
    this.usage = null;
    this.finish = null;
  }

  get text() {
    return this.#text.data;
  }

  /** The tool calls as the interface has them in a conversation. */
  get calls() {
    return this.#calls.map(({ id, name, args }) => ({
      id,
      type: "function",
      function: { name: name.data, arguments: args.data },
    }));
  }

  /** Whether anything has come. */
  get any() {
    return this.text !== "" || this.#calls.length > 0;
  }

  /** Take one chunk of the stream. */
  take(chunk) {
    if (chunk.usage) this.usage = chunk.usage;
    for (const { delta = {}, finish_reason: finish } of chunk.choices ?? []) {
      this.#tick(delta);
      const thought = delta.reasoning_content ?? delta.reasoning;
      if (thought) this.#think(thought);
      if (delta.content) this.#text.appendData(delta.content);
      for (const call of delta.tool_calls ?? []) this.#call(call);
      if (finish) this.finish = finish;
    }
  }

  /** No more will come. */
  end(reason) {
    this.element.classList.remove("coming");
    const summary = this.element.querySelector(".reasoning > summary");
    if (summary) summary.textContent = "Reasoning";
    this.element.append(el("p", { class: "figures" }, this.#figures(reason ?? this.finish)));
  }

  /** Show an error as the server tells it; `field` is the parameter it is about. */
  fail(problem, field) {
    const facts = [problem.status || null, problem.type, problem.code].filter(Boolean).join(" · ");
    const box = el("div", { class: "problem", role: "alert" }, el("p", {}, problem.message));
    if (problem.param) box.append(el("p", { class: "facts" }, "field ", el("code", {}, problem.param)));
    if (facts) box.append(el("p", { class: "facts" }, facts));
    if (problem.retryAfter) box.append(el("p", { class: "facts" }, `may be tried again in ${problem.retryAfter} s`));
    if (field) {
      box.append(el("button", { type: "button", class: "quiet", onclick: () => show(field) }, "Show the parameter"));
    }
    this.element.append(box);
  }

  #tick(delta) {
    if (!delta.content && !delta.reasoning_content && !delta.reasoning && !delta.tool_calls) return;
    this.#last = performance.now();
    this.#first ??= this.#last;
  }

  #think(text) {
    if (!this.#thought.parentNode) {
      const thoughts = el("div", { class: "thoughts" }, this.#thought);
      const closed = el("details", { class: "reasoning" }, el("summary", {}, "Reasoning …"), thoughts);
      this.element.querySelector(".text").before(closed);
    }
    this.#thought.appendData(text);
  }

  #call({ index = 0, id, function: called = {} }) {
    if (!this.#calls[index]) {
      const name = document.createTextNode("");
      const args = document.createTextNode("");
      this.#calls[index] = { id: null, name, args };
      this.element.append(
        el("div", { class: "call" }, el("p", {}, "calls ", el("code", {}, name)), el("pre", {}, args)),
      );
    }
    const call = this.#calls[index];
    if (id) call.id = id;
    if (called.name) call.name.appendData(called.name);
    if (called.arguments) call.args.appendData(called.arguments);
  }

  #figures(reason) {
    const found = [];
    const { prompt_tokens: prompt, completion_tokens: made, prompt_tokens_details: details } = this.usage ?? {};
    if (prompt !== undefined) {
      const cached = details?.cached_tokens ? `, ${figure(details.cached_tokens)} cached` : "";
      found.push(`${figure(prompt)} prompt tokens${cached}`, `${figure(made)} answer tokens`);
    }
    const span = (this.#last - this.#first) / 1000;
    if (made > 1 && span > 0) found.push(`${figure((made - 1) / span)} tokens/s`);
    if (this.#first !== null) found.push(`first after ${seconds((this.#first - this.#started) / 1000)}`);
    if (reason) found.push(reason);
    return found.map((part) => part.replaceAll(" ", "\u00a0")).join(" · ");
  }
}

function show(field) {
  document.dispatchEvent(new CustomEvent("show-view", { detail: "settings" }));
  field.focus();
}
