// The conversation: what has been said, the answer under way, and how it is stopped or asked for again.

import { Answer, message } from "./answer.js";
import { streamJson } from "./api.js";
import { byId, el } from "./dom.js";

const NEAR = 80; // pixels from the end of the log within which it follows what comes

export class Chat {
  #messages = [];
  #elements = []; // of the messages, so that one left out can be marked
  #abort = null;
  #log = byId("log");

  constructor(model, settings) {
    this.model = model;
    this.settings = settings;
    const prompt = byId("prompt");
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      const text = prompt.value.trim();
      if (text === "" || this.#abort) return;
      prompt.value = "";
      this.send(text);
    });
    prompt.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      byId("composer").requestSubmit();
    });
    byId("stop").addEventListener("click", () => this.stop());
    byId("reset").addEventListener("click", () => this.reset());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.stop());
  }

  /** Say something and have it answered. */
  send(text) {
    this.#leaveOutUnanswered();
    this.#say({ role: "user", content: text }, message("you", text));
    return this.#ask();
  }

  /** End the answer under way; what has come of it stays. */
  stop() {
    this.#abort?.abort();
  }

  /** Begin anew. */
  reset() {
    this.stop();
    this.#messages = [];
    this.#elements = [];
    this.#log.replaceChildren(byId("empty") ?? el("p", { id: "empty", class: "empty" }, "A new conversation."));
    byId("prompt").focus();
  }

  #say(said, element) {
    byId("empty")?.remove();
    this.#messages.push(said);
    this.#elements.push(element);
    this.#show(element);
  }

  #leaveOutUnanswered() {
    while (["user", "tool"].includes(this.#messages.at(-1)?.role)) {
      this.#messages.pop();
      this.#elements.pop().classList.add("left-out");
    }
    for (const form of this.#log.querySelectorAll("form.results, .retry")) form.remove();
  }

  async #ask() {
    const messages = this.#messages;
    const answer = new Answer(this.model());
    const abort = new AbortController();
    this.#abort = abort;
    this.settings.clearMarks();
    this.#show(answer.element);
    this.#busy(true);
    let problem = null;
    try {
      const body = this.#body();
      for await (const chunk of streamJson("v1/chat/completions", body, abort.signal)) {
        const follow = this.#atEnd();
        answer.take(chunk);
        if (follow) this.#log.scrollTop = this.#log.scrollHeight;
      }
    } catch (error) {
      if (error.name !== "AbortError") problem = error;
    }
    this.#abort = null;
    this.#busy(false);
    if (messages !== this.#messages) return; // a new conversation began meanwhile
    answer.end(abort.signal.aborted ? "stopped" : null);
    this.#close(answer, problem);
  }

  #close(answer, problem) {
    if (problem) answer.fail(problem, this.settings.mark(problem.param));
    if (answer.any) {
      const said = { role: "assistant", content: answer.text || null };
      if (answer.finish === "tool_calls") said.tool_calls = answer.calls;
      this.#messages.push(said);
      this.#elements.push(answer.element);
    }
    if (said(this.#messages).tool_calls) this.#askResults(answer);
    else if (!answer.any) answer.element.append(this.#retry(answer));
    this.#log.scrollTop = this.#log.scrollHeight;
  }

  #body() {
    const system = this.settings.system;
    return {
      model: this.model(),
      messages: [...(system ? [{ role: "system", content: system }] : []), ...this.#messages],
      stream: true,
      stream_options: { include_usage: true },
      ...this.settings.fields(),
    };
  }

  #retry(answer) {
    const again = () => {
      answer.element.remove();
      this.#ask();
    };
    return el("button", { type: "button", class: "retry quiet", onclick: again }, "Try again");
  }

  #askResults(answer) {
    const calls = answer.calls;
    const inputs = calls.map((call) => el("textarea", { rows: 2, class: "code", required: true, name: call.id }));
    const labels = calls.map((call, index) => el("label", {}, `Result of ${call.function.name}`, inputs[index]));
    const give = (event) => {
      event.preventDefault();
      form.remove();
      calls.forEach((call, index) => {
        const content = inputs[index].value;
        this.#say({ role: "tool", tool_call_id: call.id, content }, message("tool", content));
      });
      this.#ask();
    };
    const button = el("button", { class: "main" }, "Send results");
    const form = el("form", { class: "results", onsubmit: give }, labels, button);
    answer.element.append(form);
  }

  #atEnd() {
    return this.#log.scrollHeight - this.#log.scrollTop - this.#log.clientHeight < NEAR;
  }

  #show(element) {
    this.#log.append(element);
    this.#log.scrollTop = this.#log.scrollHeight;
  }

  #busy(busy) {
    this.#log.setAttribute("aria-busy", String(busy));
    byId("stop").hidden = !busy;
    byId("send").hidden = busy;
  }
}

const said = (messages) => messages.at(-1) ?? {};
