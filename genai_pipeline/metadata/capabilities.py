"""The names of capabilities: what a package may need of the program that runs it.

Most follow from the constructs a package uses; ``capabilities:`` declares further ones. A name that is not here is an
error, since nobody could say what it asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CAPABILITIES: Final[Mapping[str, str]] = {
    "input.text": "text inputs",
    "input.image": "image inputs",
    "input.audio": "audio inputs",
    "input.video": "video inputs",
    "input.tensor": "tensor, items and vector inputs",
    "input.live": "inputs that grow while the request runs",
    "input.placeholder": "items that take up slots of the prompt",
    "output.text": "text outputs",
    "output.image": "image outputs",
    "output.audio": "audio outputs",
    "output.video": "video outputs",
    "output.tensor": "tensor, items and vector outputs",
    "loop.decode": "decode loops",
    "loop.iterate": "iterate loops",
    "loop.iterate.over": "iterate loops over an axis of a value, in chunks",
    "loop.iterate.until": "iterate loops that end on a condition",
    "loop.nested": "loops inside loops",
    "decode.tokens": "decode loops whose body chooses the tokens",
    "decode.carry": "decode loops that carry values from step to step",
    "decode.after_choice": "stages that run once the token is chosen",
    "decode.positions": "positions that an operation gives",
    "decode.walk": "decode loops that walk over rows (transducers)",
    "decode.template": "prompts written as a template of tokens",
    "for_each": "stages that run once per item of a list",
    "guide": "classifier-free guidance",
    "when": "stages that run on a condition",
    "model.pair": "one graph for the first run and one for later runs",
    "model.variants": "alternative graphs per provider and precision",
    "model.borrowed": "components of other packages",
    "batch.pack": "rows joined on the first axis",
    "span": "components that limit the tokens of a run",
    "state.read": "runs that use state without advancing it",
    "kv.in_place": "caches in which past and present share a buffer",
    "kv.append": "caches that return past and new together",
    "kv.scatter": "caches written at an index",
    "kv.fixed": "caches written once",
    "kv.replace": "recurrent and convolution state",
    "kv.history": "caches bounded by a history",
    "kv.window": "caches with an attention window",
    "kv.session": "state that outlives the request",
    "structured_output": "constraints on the output",
    "tools": "tool calls",
    "reasoning": "reasoning told apart from the answer",
    "speculative.draft": "drafts of a smaller model",
    "speculative.lookup": "drafts looked up in the tokens so far",
    "speculative.propose": "drafts of a head of the model",
    "adapters": "weights laid over components",
    "session": "sessions that outlive a request",
}
