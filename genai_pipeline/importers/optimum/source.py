"""What every model of this format has: config files, a tokenizer, and what they say about length and end tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.optimum.layout import Layout
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.generation_config import FILE as GENERATION
from genai_pipeline.importers.shared.generation_config import of_config
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.texts import TOKENIZER, token_texts

TOKENIZER_CONFIG = "tokenizer_config.json"
TOKENIZER_FILES = (TOKENIZER, TOKENIZER_CONFIG, "special_tokens_map.json", "chat_template.jinja", "chat_template.json")
_CONTEXT = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_target_positions")
_ENORMOUS = 10**9  # model_max_length of tokenizers that have no limit is about 1e30
_HINT = "give it in config.json as max_position_embeddings"


@dataclass(frozen=True, slots=True)
class Source:
    """A folder with its layout and configs; ``text`` is the config of the text decoder (of config.json, or inside)."""

    folder: SourceFolder
    layout: Layout
    report: ImportReport
    config: ConfigNode
    generation: ConfigNode
    tokenizer_config: ConfigNode
    files: dict[str, None] = field(default_factory=dict)  # names to link besides the graphs, in order

    @staticmethod
    def of(folder: SourceFolder, layout: Layout) -> Source:
        """Reads the config files. Raises ImportModelError when config.json is not there or damaged."""
        folder.need("config.json", "it says what the model is")
        report = ImportReport()
        for name, why in layout.unused.items():
            report.dropped(name, "", why)
        config = folder.json("config.json")
        generation = folder.json(GENERATION) if folder.has(GENERATION) else of_config(config)
        return Source(folder, layout, report, config, generation, folder.optional_json(TOKENIZER_CONFIG))

    @property
    def text(self) -> ConfigNode:
        """The config of the part that writes text."""
        for key in ("text_config", "llm_config", "language_config", "decoder"):
            if key in self.config:
                return self.config.mapping(key)
        return self.config

    def tokens(self, *, chat: bool = True) -> dict[str, Any]:
        """The package's ``tokenizer`` entry; its files are noted for linking. Raises ImportModelError without one."""
        self.folder.need(TOKENIZER, "texts are split with it; other forms of tokenizers must be converted first")
        for name in TOKENIZER_FILES:
            if self.folder.has(name) and (chat or not name.startswith("chat_template")):
                self.files[name] = None
                self.report.mapped(name, "", "tokenizer, read beside tokenizer.json")
        entry: dict[str, Any] = {"file": TOKENIZER}
        ends = self.ends()
        return {**entry, "eos": list(ends)} if ends else entry

    def words(self) -> dict[int, str]:
        """Texts of the tokenizer's tokens by id, as far as its file lists them."""
        self.folder.need(TOKENIZER, "texts are split with it")
        return token_texts(self.folder)

    def ends(self) -> tuple[int, ...]:
        """End tokens by id, from the first file that says any: generation_config.json, then config.json."""
        for config in (self.generation, self.text, self.config):
            if found := config.integers("eos_token_id"):
                self.report.mapped(config.file, config.at("eos_token_id"), "tokenizer.eos")
                return found
        return ()

    def context(self) -> int:
        """Most tokens of a text; refused when no file says it, since the graph does not."""
        for config in (self.text, self.config):
            for key in _CONTEXT:
                if key in config:
                    self.report.mapped(config.file, config.at(key), "limits.context_length")
                    return config.integer(key, least=1)
        limit = self.tokenizer_config.get("model_max_length")
        if limit is not None and isinstance(limit.value, int | float) and limit.value < _ENORMOUS:
            self.report.mapped(TOKENIZER_CONFIG, "model_max_length", "limits.context_length")
            return self.tokenizer_config.integer("model_max_length", least=1)
        self.report.refused("config.json", _CONTEXT[0], "missing: how long a text may be is not said anywhere", _HINT)
        return 1

    def close(self) -> None:
        """Gives every key of the configs that was not read its row, and stops when anything was refused."""
        for root, why in (
            (self.config, "a fact of the graphs, or of training"),
            (self.generation, "it changes no answer here"),
        ):
            for leaf in self.report.uncovered(root):
                if leaf.path:
                    self.report.dropped(leaf.file, leaf.path, why)
        self.report.check(str(self.folder.path))
