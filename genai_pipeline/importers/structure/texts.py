"""What the files beside the graphs say about text: tokenizer, chat template, end tokens, context, start of a decoder.

Only what such files have in common is read, under the keys that published models share; absent is an open question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.source_folder import SourceFolder

TOKENIZER = "tokenizer.json"
_TEMPLATE = ".jinja"
_ENDS = (("special_tokens_map.json", "eos_token"), ("tokenizer_config.json", "eos_token"),
         ("generation_config.json", "eos_token_id"))  # fmt: skip
_CONTEXT = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "max_target_positions",
            "context_length")  # fmt: skip
_PLACEHOLDERS = ("image_token_id", "image_token_index", "audio_token_id", "audio_token_index")
NEVER: Mapping[str, str] = {"suppress_tokens": "suppress", "begin_suppress_tokens": "begin_suppress"}
FORCED = "forced_bos_token_id"
_POOLING = "1_Pooling/config.json"
_KINDS = (("pooling_mode_mean_tokens", "mean"), ("pooling_mode_cls_token", "cls"), ("pooling_mode_lasttoken", "last"))
_SHOWN = 8  # control tokens in a question


@dataclass(frozen=True, slots=True)
class Texts:
    """``vocabulary``: how many tokens there are; ``specials``: control tokens, of the ``added`` ones; None and (): not
    known."""

    tokenizer: str | None = None
    chat_template: str | None = None
    ends_known: bool = False  # files that the tokenizer's reader knows say which tokens end an answer
    eos: tuple[int, ...] = ()  # from elsewhere
    lacking: tuple[int, ...] = ()  # those of config.json that the vocabulary does not have
    start: str | None = None  # the token a decoder starts from
    context: int | None = None
    heads: int | None = None
    head_dim: int | None = None
    vocabulary: int | None = None
    specials: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    placeholder: str | None = None  # the token that stands for pictures or sounds, where there is one for all
    never: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # see ``never_chosen``
    pooling: str | None = None
    normalized: bool = False

    @property
    def placeholders(self) -> tuple[str, ...]:
        """What may stand for an item: added tokens that speak of pictures or sounds, else control tokens."""
        words = ("image", "img", "picture", "vision", "video", "audio", "speech", "sound")
        named = tuple(text for text in self.added if any(word in text.lower() for word in words))
        return named[:_SHOWN] or self.choices

    @property
    def choices(self) -> tuple[str, ...]:
        """Control tokens to choose from in a question."""
        return self.specials[:_SHOWN]


def read_texts(folder: SourceFolder) -> Texts:
    """What the folder's files say. Raises ImportModelError for one that is damaged."""
    config = folder.optional_json("config.json")
    inner = next((config.mapping(key) for key in ("text_config", "decoder") if key in config), config)
    generation = folder.optional_json("generation_config.json")
    tokenizer = folder.json(TOKENIZER) if folder.has(TOKENIZER) else ConfigNode(TOKENIZER, "", {})
    tokens, added = _tokens(tokenizer), list(_added(tokenizer))
    templates = sorted(path.name for path in folder.path.glob(f"*{_TEMPLATE}"))
    known = any(key in folder.optional_json(file) for file, key in _ENDS)
    start = next(
        (n.integer("decoder_start_token_id") for n in (generation, config) if "decoder_start_token_id" in n), None
    )
    items = {config.integer(key) for key in _PLACEHOLDERS if key in config}
    text_of = {index: text for text, index in tokens.items()}
    ends = config.integers("eos_token_id")
    return Texts(
        tokenizer=TOKENIZER if folder.has(TOKENIZER) else None,
        chat_template=templates[0] if len(templates) == 1 else None,
        ends_known=known,
        eos=() if known else ends,
        lacking=() if known else tuple(i for i in ends if i < 0 or (text_of and i not in text_of)),
        start=None if start is None else text_of.get(start),
        context=_first(inner, *_CONTEXT) or _first(config, *_CONTEXT),
        heads=_first(inner, "num_key_value_heads"),
        head_dim=_first(inner, "head_dim"),
        vocabulary=len(tokens) or None,
        specials=tuple(token.text("content") for token in added if token.boolean("special", False)),
        added=tuple(token.text("content") for token in added),
        placeholder=text_of.get(items.pop()) if len(items) == 1 else None,
        never=never_chosen(generation),
        pooling=_pooling(folder),
        normalized=folder.has("modules.json") and "Normalize" in folder.text("modules.json"),
    )


def token_texts(folder: SourceFolder) -> dict[int, str]:
    """The text of every token by id, as far as the tokenizer's file lists them."""
    tokenizer = folder.json(TOKENIZER) if folder.has(TOKENIZER) else ConfigNode(TOKENIZER, "", {})
    return {index: text for text, index in _tokens(tokenizer).items()}


def never_chosen(generation: ConfigNode) -> dict[str, tuple[int, ...]]:
    """Field of a decode loop -> ids that are never chosen, or never first; of generation_config.json, -1 for none.

    With a forced first token the second list counts from the token after it, which no loop can: it is left out.
    """
    read = {name: generation.integers(key) for key, name in NEVER.items()}
    known = {name: tuple(token for token in ids if token >= 0) for name, ids in read.items()}
    skipped = {"begin_suppress"} if FORCED in generation else set()
    return {name: ids for name, ids in known.items() if ids and name not in skipped}


def _first(config: ConfigNode, *keys: str) -> int | None:
    return next((config.integer(key, least=1) for key in keys if key in config), None)


def _tokens(tokenizer: ConfigNode) -> dict[str, int]:
    """Every token by text, as far as the file lists them."""
    vocabulary = tokenizer.mapping("model").get("vocab")
    found: dict[str, int] = {}
    if vocabulary is not None and isinstance(vocabulary.value, dict):
        found = {text: index for text, index in vocabulary.value.items() if isinstance(index, int)}
    elif vocabulary is not None and isinstance(vocabulary.value, list):  # unigram: pairs of text and score
        found = {str(item[0]): i for i, item in enumerate(vocabulary.value) if isinstance(item, list) and item}
    return found | {token.text("content"): token.integer("id") for token in _added(tokenizer)}


def _added(tokenizer: ConfigNode) -> Iterator[ConfigNode]:
    added = tokenizer.get("added_tokens")
    yield from added.items() if added is not None else ()


def _pooling(folder: SourceFolder) -> str | None:
    """How rows become one vector, where a file of sentence transformers says so, and says one way."""
    config = folder.optional_json(_POOLING)
    kinds = [kind for key, kind in _KINDS if config.boolean(key, False)]
    return kinds[0] if len(kinds) == 1 else None
