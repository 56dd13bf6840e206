// The parameters panel: what of it goes into a request, and which field an error is about.

const NUMBERS = ["temperature", "top_p", "top_k", "max_tokens", "seed"];

/** A field that cannot be sent as it is. */
export class FieldProblem extends Error {
  constructor(field, message) {
    super(message);
    this.param = field;
  }
}

export class Settings {
  constructor(form) {
    this.form = form;
    form.addEventListener("input", (event) => event.target.removeAttribute("aria-invalid"));
    form.addEventListener("reset", () => this.clearMarks());
  }

  /** The system message, perhaps empty. */
  get system() {
    return this.form.elements.system.value.trim();
  }

  /** Fields of the request body; what is left empty is left to the package. Throws FieldProblem. */
  fields() {
    const found = {};
    for (const name of NUMBERS) {
      const input = this.form.elements[name];
      if (input.validity.badInput) throw new FieldProblem(name, "this is not a number");
      if (input.value !== "") found[name] = Number(input.value);
    }
    const effort = this.form.elements.reasoning_effort.value;
    if (effort) found.reasoning_effort = effort;
    const schema = this.#json("schema");
    if (schema !== undefined) {
      found.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
    }
    const tools = this.#json("tools");
    if (tools !== undefined) found.tools = tools;
    return found;
  }

  /** Mark the field that an error names; gives it, or null. */
  mark(param) {
    const name = fieldOf(param);
    const field = name === null ? null : this.form.elements[name];
    field?.setAttribute("aria-invalid", "true");
    return field ?? null;
  }

  clearMarks() {
    for (const field of this.form.elements) field.removeAttribute("aria-invalid");
  }

  #json(name) {
    const text = this.form.elements[name].value.trim();
    if (text === "") return undefined;
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new FieldProblem(name, `this is not JSON: ${error.message}`);
    }
  }
}

function fieldOf(param) {
  const first = (param ?? "").split(/[.[]/)[0];
  if (first === "response_format") return "schema";
  if (first === "max_completion_tokens") return "max_tokens";
  return [...NUMBERS, "reasoning_effort", "system", "schema", "tools"].includes(first) ? first : null;
}
