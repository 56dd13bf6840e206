"""What stands in a prompt for a picture, by ``model.type``: onnxruntime-genai writes it in code, no file says it.

For each type that is known: the text a chat template writes for a picture, what becomes of it, and the token whose
places take the picture's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.genai_config.image_program import Ends, ImageProgram
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.texts import token_texts
from genai_pipeline.importers.tokenizer_files import TEMPLATE, TOKENIZER, TokenizerFiles
from genai_pipeline.problems import one_of

_TOKEN_KEY: Final = "image_token_id"
_WHY: Final[Mapping[str, str]] = {
    "phi3v": "numbered marks (<|image_1|>) that become negative numbers in place of tokens",
    "phi4mm": "numbered marks (<|image_1|>, <|audio_1|>), and how many rows a tile or a sound has",
    "gemma4": "rows whose number its own step tells",
    "videochat_flash_qwen": "all pictures of a request as the frames of one film",
}


@dataclass(frozen=True, slots=True)
class PictureMarks:
    """``written`` by templates; ``slot``: the token of the places; ``others`` stand around them.

    ``share`` gives the fields of the placeholder beside the token; ``ends``: what the program has to end in for that.
    ``rows``: of a picture, where it is one number for all; ``block``: pixels along a side that make one row. ``feeds``:
    other inputs of the graph by nominal name -> default port and value, which stages ``before`` it make; ``prepare``
    ends the program as the graph needs it.
    """

    written: str
    slot: str
    others: tuple[str, ...]
    ends: Ends
    share: Callable[[ConfigNode], dict[str, Any]]
    rows: int | None = None
    block: Callable[[ConfigNode], int] = lambda vision: _patch(vision) * _merge(vision)
    feeds: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    before: tuple[Mapping[str, Any], ...] = ()
    prepare: Callable[[ConfigNode, ImageProgram], ImageProgram] = lambda vision, program: program

    def placeholder(self, vision: ConfigNode) -> dict[str, Any]:
        """The ``placeholder`` of the input; ``vision``: the part of the config."""
        return {"token": self.slot, **self.share(vision)}


def _patch(vision: ConfigNode) -> int:
    return vision.integer("patch_size", 14, least=1)


def _merge(vision: ConfigNode) -> int:
    return vision.integer("spatial_merge_size", 2, least=1)


def _framed(vision: ConfigNode) -> dict[str, Any]:
    """Jinja would cut a line end off the end of a text: it is an expression."""
    return {"expand": "\n\n<start_of_image>{{ features(256) }}<end_of_image>{{ '\\n\\n' }}"}


def _lined(vision: ConfigNode) -> dict[str, Any]:
    """A mark behind each line of rows, another one behind the last; a row is a block of merged patches."""
    block = _patch(vision) * _merge(vision)
    sides = (
        f"{{% set {name} = (images.original[{axis}] * images.scale[{axis}]) | round | int // {block} %}}"
        for axis, name in enumerate(("lines", "columns"))
    )
    line = "{{ features(columns) }}{{ '[IMG_END]' if loop.last else '[IMG_BREAK]' }}"
    return {"expand": f"{''.join(sides)}{{% for line in range(lines) %}}{line}{{% endfor %}}"}


def _patched(vision: ConfigNode) -> dict[str, Any]:
    return {"count": "images.tokens"}


def _filled(vision: ConfigNode) -> dict[str, Any]:
    """As many rows as blocks of merged patches, those at the edges too."""
    merge = _merge(vision)
    count = " * ".join(f"(-(-images.grid[{axis}] // {merge}))" for axis in (1, 2))
    return {"expand": f"<|image_start|>{{{{ features({count}) }}}}<|image_end|>"}


def _to_patches(vision: ConfigNode, program: ImageProgram) -> ImageProgram:
    """The graph takes patches, filled up to one length where the config has one."""
    return program.as_patches(_patch(vision), vision.integer("max_num_patches", 0) or None)


_BY_PATCHES: Final = PictureMarks(
    "<|image_pad|>",
    "<|image_pad|>",
    (),
    Ends.PATCHES,
    _patched,
    feeds={"image_grid_thw": ("image_grid_thw", "images.grid")},
)
_LINES: Final[Mapping[str, Any]] = {
    "op": "slice",
    "with": {"axis": 0, "start": 1, "stop": 3},
    "inputs": {"value": "images.grid"},
    "outputs": {"result": "lines"},
}
_MARKS: Final[Mapping[str, PictureMarks]] = {
    "gemma3": PictureMarks(
        "<start_of_image>", "<image_soft_token>", ("<end_of_image>",), Ends.PIXELS, _framed, rows=256
    ),
    "mistral3": PictureMarks("[IMG]", "[IMG]", ("[IMG_BREAK]", "[IMG_END]"), Ends.SIZED, _lined),
    "lfm2_vl": PictureMarks(
        "<image>",
        "<image>",
        ("<|image_start|>", "<|image_end|>"),
        Ends.SIZED,
        _filled,
        block=_patch,
        feeds={"attention_mask": ("image_attention_mask", "images.mask"), "image_sizes": ("image_sizes", "lines")},
        before=(_LINES,),
        prepare=_to_patches,
    ),
    **dict.fromkeys(("qwen2_5_vl", "qwen3_vl", "qwen3_5", "qwen3_5_moe", "fara"), _BY_PATCHES),
}


def read_marks(source: SourceFolder, model: ConfigNode, report: ImportReport) -> tuple[PictureMarks, int] | None:
    """The marks of pictures and the id of their token; refused, and None, where they are not known."""
    kind = model.text("type")
    marks = _MARKS.get(kind)
    if marks is None:
        why = f"'{kind}': its prompts tell of pictures by {_WHY.get(kind, 'rules that are not known here')}"
        hint = f"known are {one_of(tuple(_MARKS))}; write others by hand: docs/media_inputs.md"
        report.refused(model.file, model.at("type"), why, hint)
        return None
    ids = {text: index for index, text in token_texts(source).items()}
    missing = [text for text in dict.fromkeys((marks.slot, marks.written, *marks.others)) if text not in ids]
    if missing:
        report.refused(TOKENIZER, "added_tokens", f"has no {one_of(missing)}, which stand for a picture in prompts")
        return None
    if _TOKEN_KEY in model:
        said = model.integer(_TOKEN_KEY)
        if said != ids[marks.slot]:
            why = f"is {said}; {marks.slot} of {TOKENIZER} is {ids[marks.slot]}"
            report.refused(model.file, model.at(_TOKEN_KEY), why, "give the token that stands for a picture's rows")
        report.mapped(model.file, model.at(_TOKEN_KEY), "inputs.images.placeholder.token")
    report.mapped(
        model.file, model.at("type"), "inputs.images.placeholder: what prompts of this type have for a picture"
    )
    return marks, ids[marks.slot]


def with_slots(tokenizer: TokenizerFiles, marks: PictureMarks, report: ImportReport) -> TokenizerFiles:
    """The tokenizer files whose template writes the token of slots for a picture: one token stands for both here."""
    if tokenizer.template is None or marks.written == marks.slot or marks.written not in tokenizer.template:
        return tokenizer
    to = f"tokenizer.chat_template, where it writes {marks.slot}; raw prompts of the package have that token too"
    report.mapped(TEMPLATE, marks.written, to)
    return replace(tokenizer, template=tokenizer.template.replace(marks.written, marks.slot))
