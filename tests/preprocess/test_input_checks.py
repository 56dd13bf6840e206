"""What validation says about inputs: programs, fields that are read of them, placeholders, lengths, choices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.errors import OptionError
from genai_pipeline.preprocess.prompts import PromptReader
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.testing import write_package
from genai_pipeline.testing.media import PARTS_TEMPLATE, write_listener, write_towers, write_vlm

Edit = Callable[[dict[str, Any]], object]
Found = list[tuple[str, str]]


def problems(package: Any) -> Found:
    return [(p.code, p.at.path) for p in gp.validate(package)[1] if p.severity != "note"]


def image(metadata: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = metadata["inputs"]["images"]
    return given


def place(metadata: dict[str, Any], **fields: Any) -> None:
    image(metadata)["placeholder"] = {"token": "<image>", **fields}


def test_the_packages_that_see_and_hear_are_sound_and_short(tmp_path: Path) -> None:
    for write in (write_vlm, write_listener, write_towers):
        package = write(tmp_path / write.__name__)
        assert problems(package) == []
        assert len((package.path / "inference_metadata.yaml").read_text().splitlines()) < 70


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda m: image(m).pop("program"), [
            ("program.missing", "inputs.images"), ("program.unused", "preprocess.prepare")
        ]),
        (lambda m: m["preprocess"].update(spare=[{"decode": {}}]), [("program.unused", "preprocess.spare")]),
        (lambda m: m["preprocess"]["prepare"][0].update(decode={"mood": "RGB"}), [
            ("call.unknown_parameter", "preprocess.prepare[0].decode.mood")
        ]),
        (lambda m: m["preprocess"]["prepare"].insert(1, {"resample": {"rate": 5}}), [
            ("program.unknown_step", "preprocess.prepare[1].resample")
        ]),
        (lambda m: m["stages"][0]["inputs"].update(pixel_values="images.grid"), [
            ("program.field", "stages[0].inputs.pixel_values")
        ]),
        (lambda m: place(m, count="images.tokens"), [("program.field", "inputs.images.placeholder.count")]),
        (lambda m: place(m, count="prompt.length"), [("placeholder.count", "inputs.images.placeholder.count")]),
        (lambda m: image(m).pop("placeholder"), [("program.field", "stages[2].body[1].inputs.at")]),
        (lambda m: place(m, token="<imag>", count=4), [
            ("tokenizer.token_unknown", "inputs.images.placeholder.token")
        ]),
        (lambda m: place(m, token="</s>", count=4), [("placeholder.token", "inputs.images.placeholder.token")]),
        (lambda m: place(m, token="red", count=4), [("placeholder.template", "inputs.images.placeholder.token")]),
        (lambda m: place(m, expand="{{ features(4) "), [("placeholder.expand", "inputs.images.placeholder.expand")]),
        (lambda m: place(m, expand="nothing"), [("placeholder.expand", "inputs.images.placeholder.expand")]),
        (lambda m: place(m, expand="<image>{{ features(3) }}"), [
            ("placeholder.expand", "inputs.images.placeholder.expand")
        ]),
        (lambda m: place(m, expand="{{ features(tiles) }}"), [
            ("placeholder.expand", "inputs.images.placeholder.expand")
        ]),
        (lambda m: m["inputs"].update(other={"modality": "text"}), [("graph.unused_input", "inputs.other")]),
    ],
)  # fmt: skip
def test_one_fault_gives_exactly_its_problems(tmp_path: Path, edit: Edit, expected: Found) -> None:
    assert problems(write_vlm(tmp_path, edit=edit)) == expected


def test_a_share_of_the_packages_own_making_is_sound(tmp_path: Path) -> None:
    text = "{% for row in range(2) %}{{ features(2) }}\n{% endfor %}{{ parameters.name }}{{ images.original }}"
    edit: Edit = lambda m: (  # noqa: E731
        place(m, expand=text),
        m["inputs"].update(parameters={"name": {"type": "string", "default": "x"}}),
    )
    assert problems(write_vlm(tmp_path, edit=edit)) == []


def test_which_prompt_has_the_places_must_be_clear(tmp_path: Path) -> None:
    def rename(metadata: dict[str, Any]) -> None:
        metadata["inputs"] = {"a": {"modality": "text"}, "b": {"modality": "text"}, "images": image(metadata)}
        metadata["stages"][2]["prompt"] = "a.tokens"

    assert ("placeholder.prompt", "inputs.images") in problems(write_vlm(tmp_path, edit=rename))


def test_two_inputs_need_two_tokens(tmp_path: Path) -> None:
    def double(metadata: dict[str, Any]) -> None:
        metadata["inputs"]["photos"] = {**image(metadata), "required": False}

    assert ("placeholder.token", "inputs.photos.placeholder.token") in problems(write_vlm(tmp_path, edit=double))


@pytest.mark.parametrize(
    "template",
    [
        PARTS_TEMPLATE.replace("<image>", ""),
        PARTS_TEMPLATE.replace("<image>", "<image><image>"),
        PARTS_TEMPLATE.replace("<|im_start|>", "<image>", 1),
    ],
)
def test_a_template_must_write_one_placeholder_for_a_part(tmp_path: Path, template: str) -> None:
    found = problems(write_vlm(tmp_path, chat_template=template))
    assert found == [("placeholder.template", "inputs.images.placeholder.token")]


def test_padding_needs_a_token_and_no_loop(tmp_path: Path) -> None:
    towers = write_towers(tmp_path / "towers", edit=lambda m: m["tokenizer"].update(pad_to=8))
    assert problems(towers) == [("tokenizer.pad_missing", "tokenizer.pad_to")]
    towers = write_towers(tmp_path / "towers", edit=lambda m: m["tokenizer"].update(pad_to=8, pad="<unk>"))
    assert problems(towers) == []
    tiny = write_package(tmp_path / "tiny", "kv", edit=lambda m: m["tokenizer"].update(pad_to=8, pad="<unk>"))
    assert problems(tiny) == [("tokenizer.pad_prompt", "tokenizer.pad_to")]


@pytest.fixture
def chosen(tmp_path: Path) -> Callable[..., Any]:
    """Writes a package with a parameter whose choices come from a file."""

    def write(content: str, file: str = "voices.json", **parameter: Any) -> Any:
        def edit(metadata: dict[str, Any]) -> None:
            metadata["inputs"]["parameters"] = {"voice": {"type": "choice", "from": "data.voices", **parameter}}
            metadata["data"] = {"voices": {"file": file}}
            metadata["stages"][0]["body"][0]["inputs"] |= {}

        package = write_package(tmp_path / "tiny", "kv", edit=edit)
        (package.path / file).write_text(content, encoding="utf-8")
        return package

    return write


def test_choices_come_from_the_names_of_a_file(chosen: Any) -> None:
    for content in (json.dumps({"joe": [1], "amy": [2]}), json.dumps(["joe", "amy"])):
        package = chosen(content, default="joe")
        assert [code for code, _ in problems(package)] == ["graph.unused_input"]
        spec = gp.validate(package)[0]
        reader = PromptReader(spec, {"default": Tokenizer.load(spec.root, spec.tokenizers["default"])})
        assert reader.prompt("x")["parameters.voice"] == "joe"
        assert reader.prompt("x", parameters={"voice": "amy"})["parameters.voice"] == "amy"
        with pytest.raises(OptionError, match="voice must be one of amy, joe, not 'jo'") as caught:
            reader.prompt("x", parameters={"voice": "jo"})
        assert (caught.value.param, caught.value.hint) == ("voice", "did you mean 'joe'?")


@pytest.mark.parametrize(
    ("content", "parameter", "path"),
    [
        ("[1, 2]", {}, "from"),
        ("{}", {}, "from"),
        ("no json", {}, "from"),
        ('"text"', {}, "from"),
        ('["amy"]', {"default": "joe"}, "default"),
    ],
)
def test_files_without_names_are_problems(chosen: Any, content: str, parameter: Any, path: str) -> None:
    assert ("value.choices", f"inputs.parameters.voice.{path}") in problems(chosen(content, **parameter))
