"""Sessions with pictures: given beside a text, kept as they were shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import PIL.Image

import genai_pipeline as gp
from genai_pipeline.importers.mixers import WORDS, stages_without_slots
from genai_pipeline.testing.media import write_vlm
from genai_pipeline.testing.signals import quarters

FIRST, OTHER = ("red", "green", "blue", "white"), ("white", "blue", "green", "red")


def test_a_picture_beside_a_text_stays_what_it_was(tmp_path: Path) -> None:
    shown = tmp_path / "shown.png"
    PIL.Image.fromarray(quarters(*FIRST)).save(shown)
    with gp.load(write_vlm(tmp_path / "vlm")) as pipe, pipe.session() as session:
        assert session.chat("what?", images=[str(shown)]).text == "".join(FIRST)
        mark = session.checkpoint()
        PIL.Image.fromarray(quarters(*OTHER)).save(shown)  # another picture under the same name
        second = session.chat("and?")
        assert second.text.startswith("".join(FIRST))
        assert second.usage.cached_tokens > 0
        session.rewind(to=mark)
        shown.unlink()
        assert session.chat("and?").text == second.text
        session.save(str(tmp_path / "saved.st"))
        with pipe.session(str(tmp_path / "saved.st")) as again:
            assert again.chat("and?").text


def test_parts_without_a_source_take_the_pictures_beside_them(tmp_path: Path) -> None:
    parts = [{"type": "image"}, {"type": "text", "text": "w"}]
    with gp.load(write_vlm(tmp_path / "vlm")) as pipe, pipe.session() as session:
        assert session.chat(parts, images=[quarters(*FIRST)]).text == "".join(FIRST)
        assert session.chat("hm").text.startswith("".join(FIRST))


def test_a_mask_of_slots_is_known_by_their_identities(tmp_path: Path) -> None:
    """A second picture in turn two changes the mask behind the first turn only, whose state stays good."""

    def masked(metadata: dict[str, Any]) -> None:
        body = metadata["stages"][-1]["body"]
        body[0]["inputs"]["input_ids"] = WORDS
        body[:0] = stages_without_slots({"images": 7})

    package = write_vlm(tmp_path / "vlm", edit=masked)
    with gp.load(package.path) as pipe, pipe.session() as session:
        assert session.chat("what?", images=[quarters(*FIRST)]).text == "".join(FIRST)
        second = session.chat("and?", images=[quarters(*OTHER)])
        assert second.text == "".join((*FIRST, *FIRST, *OTHER))
        assert second.usage.cached_tokens > 0
