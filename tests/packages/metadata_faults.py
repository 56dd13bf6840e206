"""Faults of the metadata file itself: the part of the corpus that needs no look into a graph.

Longer lines than elsewhere: it is one table, a fault a line.
"""

# ruff: noqa: E501

from __future__ import annotations

from corpus_parts import PAIR, TEXT, Step, decoder, link, metadata

ALIASES = "x-many: [&a 1" + ", *a" * 101 + "]\n"
KEYS = "x-long: {" + "k" * 300 + ": 1}\n"
VALUES = "x-many: [" + "0," * 20_000 + "0]\n"
LIMITS = "limits:\n"
PROMPT = "  prompt: {modality: text}\n"
EOS = 'eos: ["</s>"]'
MODEL = "    model: model.onnx\n"
LOOP = "    prompt: prompt.tokens\n"
DEFAULTS = "  defaults: {temperature: 0.7, top_p: 0.9}\n"


def parameter(text: str) -> tuple[Step, ...]:
    """Declare the parameter ``n``, which goes to a port of that name."""
    declared = metadata(PROMPT, f"{PROMPT}  parameters:\n    n: {text}\n")
    bound = metadata("input_ids: loop.tokens\n", "input_ids: loop.tokens\n          n: parameters.n\n")
    return declared, bound, decoder(extra=[("n", "int64", ())])


def before_limits(text: str) -> Step:
    """Add a section."""
    return metadata(LIMITS, text + LIMITS)


def defaults(text: str) -> Step:
    """Other defaults."""
    return metadata(DEFAULTS, f"  defaults: {{{text}}}\n")


def overrides(text: str) -> Step:
    """Bounds of what a request may set."""
    return metadata(DEFAULTS, f"{DEFAULTS}  overrides: {{{text}}}\n")


def session(text: str) -> Step:
    """Settings of the runtime."""
    return metadata(MODEL, f"{MODEL}    session:\n      {text}\n")


# name -> (what is wrong, the metadata it starts from, steps)
METADATA_FAULTS: dict[str, tuple[str, str, tuple[Step, ...]]] = {
    # --- YAML -------------------------------------------------------------------------------------------------------
    "yaml-key-is-a-list": ("a list as a key", TEXT, (before_limits("x-odd: {? [a, b] : 1}\n"),)),
    "yaml-key-null": ("nothing as a key", TEXT, (metadata(PROMPT, f"{PROMPT}  ~: {{modality: text}}\n"),)),
    "yaml-key-too-long": ("a key of 300 characters", TEXT, (before_limits(KEYS),)),
    "yaml-many-aliases": ("a hundred and one aliases", TEXT, (before_limits(ALIASES),)),
    "yaml-many-values": ("twenty thousand values", TEXT, (before_limits(VALUES),)),
    "yaml-number-too-large": ("a number beyond 64 bits", TEXT, (metadata("context_length: 64", "context_length: 99999999999999999999"),)),
    "yaml-line-separator": ("a line break that YAML 1.2 does not have", TEXT, (metadata("name: broken", "name: broken # a\u2028b"),)),
    "yaml-half-a-character": ("an escape that is half a character", TEXT, (metadata("name: broken", 'name: broken\nsummary: "\\ud83d"'),)),
    "yaml-string-tag": ("a tag for what is text anyway", TEXT, (metadata("name: broken", "name: !!str broken"),)),
    "yaml-at-sign": ("a value that begins with @", TEXT, (metadata("name: broken", "name: @broken"),)),
    "yaml-tab-before-comment": ("a tab between a value and a comment", TEXT, (metadata("name: broken", "name: broken\t# name"),)),
    "yaml-duplicate-section": ("a section given twice", TEXT, (before_limits("generation:\n  defaults: {temperature: 0}\n"),)),
    # --- schema -----------------------------------------------------------------------------------------------------
    "schema-merge-key": ("a merge key of YAML 1.1", TEXT, (metadata("limits:\n  context", "limits:\n  <<: {max_new_tokens: 5}\n  context"),)),
    "schema-name-hyphen": ("a hyphen in the name of an input", TEXT, (metadata(PROMPT, f"{PROMPT}  the-rest: {{modality: text}}\n"),)),
    "schema-package-name": ("a blank in the package's name", TEXT, (metadata("name: broken", "name: very broken"),)),
    "schema-version-number": ("a schema version that is a number", TEXT, (metadata('"1"', "1"),)),
    "schema-null-binding": ("a port bound to nothing", TEXT, (metadata("attention_mask: loop.attention_mask", "attention_mask:"),)),
    "schema-not-a-number": ("a temperature that is no number", TEXT, (metadata("temperature: 0.7", "temperature: .nan"),)),
    "schema-infinite": ("an infinite penalty", TEXT, (metadata("top_p: 0.9", "repetition_penalty: .inf"),)),
    "schema-top-p-zero": ("no probability left", TEXT, (metadata("top_p: 0.9", "top_p: 0"),)),
    "schema-top-k-fraction": ("half a token", TEXT, (metadata("top_p: 0.9", "top_k: 0.5"),)),
    "schema-no-model": ("a component without a graph", TEXT, (metadata(MODEL, "    batch: stack\n"),)),
    "schema-model-and-variants": ("a graph and variants", TEXT, (metadata(MODEL, f"{MODEL}    variants: [{{model: model.onnx}}]\n"),)),
    "schema-model-pair": ("half a pair of graphs", TEXT, (metadata(MODEL, "    model: {first: model.onnx}\n"),)),
    "schema-no-past": ("a state without its inputs", TEXT, (metadata('      past: "past.{layer}.{part}"\n', ""),)),
    "schema-layers-twice": ("a layer listed twice", TEXT, (metadata("layers: 2", "layers: [0, 1, 1]"),)),
    "schema-dtype": ("a dtype that does not exist", TEXT, (metadata("dtype: float32", "dtype: float31"),)),
    "schema-block": ("a block where the engine chooses", TEXT, (metadata("    logits: logits\n", "    logits: logits\n    block: 2\n"),)),
    "schema-no-result": ("a loop without a result", TEXT, (metadata("    logits: logits\n", ""),)),
    "schema-stage-kind": ("a stage that does nothing", PAIR, (metadata("        run: embed\n", ""),)),
    "schema-run-slip": ("run misspelt in three letters", TEXT, (metadata("run: decoder", "rum: decoder"),)),
    "schema-empty-stop": ("a stop that stops nothing", TEXT, (metadata(LOOP, f"{LOOP}    stop: {{}}\n"),)),
    "schema-two-tokenizers": ("tokenizer and tokenizers", TEXT, (before_limits("tokenizers: {other: {file: tokenizer.json}}\n"),)),
    "schema-choice-values": ("a choice of nothing", TEXT, parameter("{type: choice, default: 1}")),
    "schema-parameter-default": ("a text as a number", TEXT, parameter("{type: integer, default: many}")),
    "schema-output-rate": ("a sample rate of text", TEXT, (metadata("value: generate.text}", "value: generate.text, rate: 16000}"),)),
    "schema-override": ("an override that is neither bound nor list", TEXT, (metadata(DEFAULTS, f"{DEFAULTS}  overrides: {{seed: false}}\n"),)),
    # --- references -------------------------------------------------------------------------------------------------
    "name-tokenizer": ("a tokenizer that is not declared", TEXT, (metadata(PROMPT, "  prompt: {modality: text, tokenizer: main}\n"),)),
    "name-reserved": ("a stage with a word of the language as its name", PAIR, (metadata("id: first", "id: loop"),)),
    "name-inner-stage": ("an inner stage named like an outer one", TEXT, (metadata("      - run: decoder\n", "      - id: generate\n        run: decoder\n"),)),
    "name-parameter-and-input": ("a parameter named like an input", TEXT, (metadata(PROMPT, f"{PROMPT}  parameters:\n    prompt: {{type: integer, default: 1}}\n"),)),
    # --- values -----------------------------------------------------------------------------------------------------
    "value-default-below": ("a default below its minimum", TEXT, parameter("{type: integer, default: 0, minimum: 1}")),
    "value-default-choice": ("a default that is no choice", TEXT, parameter("{type: choice, default: 3, values: [1, 2]}")),
    "value-default-type": ("a fraction for a whole number", TEXT, parameter("{type: integer, default: 1.5}")),
    "value-bounds": ("a minimum above the maximum", TEXT, parameter("{type: integer, default: 5, minimum: 9, maximum: 1}")),
    "value-override": ("a default that no request could set", TEXT, (metadata(DEFAULTS, f"{DEFAULTS}  overrides: {{temperature: {{minimum: 0, maximum: 0.5}}}}\n"),)),
    "value-limit-constant": ("a limit that computes to less than nothing", TEXT, (metadata("context_length: 64", 'context_length: "3 - 10"'),)),
    "value-limit-no-value": ("a limit that divides by nothing", TEXT, (metadata("context_length: 64", 'context_length: "64 // 0"'),)),
    "value-limit-tokens": ("more new tokens than the context holds", TEXT, (metadata("context_length: 64", "context_length: 64\n  max_new_tokens: 100"),)),
    "value-size-constant": ("a size of nothing", TEXT, (metadata("context_length: 64", 'context_length: 64\n  max_new_tokens: "5 // 9"'),)),
    "value-default-n": ("several answers to every request", TEXT, (defaults("n: 2"),)),
    "value-default-lengths": ("at least more than at most", TEXT, (defaults("min_new_tokens: 9, max_new_tokens: 5"),)),
    "value-default-limit": ("a default above the limit", TEXT, (defaults("max_new_tokens: 40"), metadata("context_length: 64", "context_length: 64\n  max_new_tokens: 32"))),
    "value-default-context": ("a default above the context", TEXT, (defaults("max_new_tokens: 64"),)),
    "value-default-stops": ("more stop texts than can be looked for", TEXT, (defaults(f"stop: {[str(i) for i in range(65)]}"),)),
    "value-override-type": ("a text as a temperature", TEXT, (overrides('temperature: {values: [0.7, "hot"]}'),)),
    "value-override-list": ("half a token among the values", TEXT, (overrides("top_k: [20, 0.5]"),)),
    "value-override-fraction": ("half a seed as a bound", TEXT, (overrides("seed: {minimum: 0.5}"),)),
    "value-override-order": ("a bound of texts", TEXT, (overrides("stop: {minimum: 1}"),)),
    "value-override-nothing": ("a bound that leaves nothing", TEXT, (overrides("top_p: {minimum: 2}"),)),
    "value-initial": ("a first value of what starts empty", TEXT, (metadata("dtype: float32", "dtype: float32\n      initial: 7"),)),
    # --- session ----------------------------------------------------------------------------------------------------
    "session-config-key": ("an entry the runtime does not know", TEXT, (session('config: {nonsense.key: "1"}'),)),
    "session-config-typo": ("a misspelt entry", TEXT, (session('config: {session.intra_op.allow_spining: "0"}'),)),
    "session-config-flag": ("a banana as a switch", TEXT, (session("config: {session.intra_op.allow_spinning: banana}"),)),
    "session-config-reserved": ("an entry that is not the package's", TEXT, (session("config: {session.intra_op_num_threads: 4}"),)),
    "session-cpu-option": ("an option the CPU provider does not have", TEXT, (session("provider_options: {cpu: {bogus: 1}}"),)),
    "session-cpu-arena": ("an arena that is neither on nor off", TEXT, (session("provider_options: {cpu: {use_arena: 2}}"),)),
    "session-provider-unlisted": ("options for a provider that is not listed", TEXT, (session("provider_options: {cuda: {device_id: 0}}"),)),
    "session-provider-unknown": ("a misspelt provider", TEXT, (session("providers: [cudda, cpu]"),)),
    # --- files ------------------------------------------------------------------------------------------------------
    "file-link-circle": ("links that lead in a circle", TEXT, (link("model.onnx", "other.onnx"), link("other.onnx", "model.onnx"))),
    "file-link-dangling": ("a link to nothing", TEXT, (link("chat_template.jinja", "elsewhere.jinja"),)),
    "file-link-twice": ("a link to a link that leaves the package", TEXT, (link("tokenizer.json", "next.json"), link("next.json", "../../accept.py"))),
    "file-backslash": ("a path as Windows writes it", TEXT, (metadata("model: model.onnx", "model: onnx\\model.onnx"),)),
    "file-windows-absolute": ("an absolute path of Windows", TEXT, (metadata("model: model.onnx", "model: C:\\model.onnx"),)),
    "file-line-end-in-name": ("a file name with a line end", TEXT, (metadata("model: model.onnx", 'model: "model.onnx\\n"'),)),
    "file-detour": ("a path that leaves the package and comes back", TEXT, (metadata("model: model.onnx", "model: ../file-detour/model.onnx"),)),
    "file-case": ("a file name in other letters", TEXT, (metadata("file: tokenizer.json", "file: Tokenizer.json"),)),
    "file-folder-missing": ("a folder that is not there", TEXT, (metadata("model: model.onnx", "model: onnx/model.onnx"),)),
}  # fmt: skip
