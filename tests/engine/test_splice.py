"""Features in the slots of a prompt: any chunks, any company, drafts, and state that is found again by what is seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.engine.body_op import BodyOp
from genai_pipeline.testing.media import MediaPackage, write_vlm
from genai_pipeline.testing.signals import quarters

SEEN = [
    ("red", "green", "blue", "white"),
    ("blue", "blue", "black", "red"),
    ("green", "red", "red", "yellow"),
    ("white", "black", "green", "blue"),
]
PICTURES = [quarters(*seen) for seen in SEEN]
ASK = {"temperature": 0, "max_new_tokens": 24}
UPDATES = ["in_place", "append", "scatter"]
Shown = Sequence[int]


@pytest.fixture
def look(tmp_path: Path) -> Any:
    """``look(update=..., **load)``: a pipeline that answers with a function of all it has seen and read."""
    pipes: list[gp.Pipeline] = []

    def open_(update: str = "in_place", edit: Any = None, **load: Any) -> tuple[gp.Pipeline, MediaPackage]:
        package = write_vlm(tmp_path / f"p{len(pipes)}", update=update, sums=True, edit=edit)
        pipes.append(gp.load(package.path, **load))
        return pipes[-1], package

    yield open_
    for pipe in pipes:
        pipe.close()


def content(text: str, shown: Shown) -> list[dict[str, Any]]:
    return [*({"type": "image", "image": PICTURES[i]} for i in shown), {"type": "text", "text": text}]


def asked(text: str, shown: Shown) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content(text, shown)}]


def expected(pipe: gp.Pipeline, package: MediaPackage, messages: Any, shown: Shown, count: int = 24) -> list[int]:
    tokens = pipe.tokenize(messages=messages)
    return package.answer(tokens, [word for i in shown for word in SEEN[i]], count)


MANY: list[tuple[str, Shown]] = [
    ("what?", [0]),
    ("what is it?", [1, 2]),
    ("no picture", []),
    ("a" * 40, [3]),
    ("what?", [1]),
    ("b" * 9, [0, 1, 2, 3]),
]


@pytest.mark.parametrize("chunk", [3, 5, 16, 512])
@pytest.mark.parametrize("update", UPDATES)
def test_any_chunk_has_its_features(look: Any, update: str, chunk: int) -> None:
    pipe, package = look(update, prefill_chunk=chunk)
    for text, shown in MANY:
        messages = asked(text, shown)
        assert list(pipe.generate(messages=messages, **ASK).tokens) == expected(pipe, package, messages, shown)


@pytest.mark.parametrize("update", UPDATES)
def test_pictures_in_one_batch_stay_apart(look: Any, update: str) -> None:
    pipe, package = look(update, max_batch=6, prefill_chunk=24)
    ask = {**ASK, "max_new_tokens": 60}
    streams = []
    for text, shown in MANY:  # they join while others are under way
        streams.append(pipe.stream(messages=asked(text, shown), **ask))
    for stream, (text, shown) in zip(streams, MANY, strict=True):
        tokens = [event.token for event in stream if event.token is not None]
        assert tokens == expected(pipe, package, asked(text, shown), shown, 60)
    assert any(int(size) > 2 for size in pipe.stats()["rows"]["decode"])


@pytest.mark.parametrize("update", UPDATES)
def test_drafts_beside_pictures(look: Any, update: str) -> None:
    pipe, package = look(update, draft="lookup")
    messages = asked("abcabcabc" * 3, [0, 1])
    found = pipe.generate(messages=messages, **{**ASK, "max_new_tokens": 100})
    assert list(found.tokens) == expected(pipe, package, messages, [0, 1], 100)


def test_a_decode_step_copies_no_embeddings(look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, _ = look("append")
    changed: list[bool] = []
    run = BodyOp.run

    def watched(self: BodyOp, context: Any) -> Any:
        given = run(self, context)
        (before,) = context.body.values()
        (after,) = given.values()
        changed.append(after is not before)
        return given

    monkeypatch.setattr(BodyOp, "run", watched)
    streams = [pipe.stream(messages=asked("what?", [i]), **ASK) for i in range(3)]
    for stream in streams:
        list(stream)
    assert not any(changed)  # those of a prompt are put in place, as nobody else reads them


def cached(pipe: gp.Pipeline, text: str, shown: Shown) -> int:
    return int(pipe.generate(messages=asked(text, shown), **ASK).usage.cached_tokens)


@pytest.mark.parametrize("update", UPDATES)
def test_equal_pictures_are_found_again_and_others_are_not(look: Any, update: str) -> None:
    pipe, package = look(update)
    text = "what is there to see in this one? " * 2
    assert cached(pipe, text, [0]) == 0
    again = cached(pipe, text, [0])
    assert again >= 64
    assert cached(pipe, text, [1]) == 0  # the slots are in the first page
    assert cached(pipe, text, [0]) == again
    for shown in ([0], [1], [0, 1], [1, 0], [0, 2]):
        messages = asked(text, shown)
        assert list(pipe.generate(messages=messages, **ASK).tokens) == expected(pipe, package, messages, shown)


def test_what_is_before_a_new_picture_is_found_again(look: Any) -> None:
    pipe, _ = look()
    text = "w" * 30
    first = [{"role": "user", "content": content(text, [0])}, {"role": "assistant", "content": "yes"}]
    pipe.generate(messages=[*first, {"role": "user", "content": content(text, [1])}], **ASK)
    for shown in ([2], [3]):
        messages = [*first, {"role": "user", "content": content(text, shown)}]
        found = pipe.generate(messages=messages, **ASK).usage.cached_tokens
        before = len(pipe.tokenize(messages=first)) - 16
        assert before - 16 <= found < before + 16


def test_features_of_more_than_their_item_are_told_apart_by_their_content(look: Any) -> None:
    """Rows that are mixed from all pictures: the first picture's slots hold another thing beside another second one."""

    def mixed(metadata: dict[str, Any]) -> None:
        stages = metadata["stages"]
        join = {"op": "concat", "with": {"axis": 1}, "inputs": {"values": "rows"}, "outputs": {"result": "all"}}
        stages.insert(2, join)
        positions = {"op": "concat", "with": {"axis": 0}, "inputs": {"values": "images.positions"}}
        stages.insert(3, {**positions, "id": "places", "outputs": {"result": "places"}})
        stages[-1]["body"][1]["inputs"] |= {"features": "all", "at": "places"}

    pipe, package = look(edit=mixed)
    assert pipe._assembly.parts["generate"].rules.identified == frozenset()
    text = "v" * 40
    for shown in ([0, 1], [0, 2], [0, 1]):
        messages = asked(text, shown)
        assert list(pipe.generate(messages=messages, **ASK).tokens) == expected(pipe, package, messages, shown)
    assert cached(pipe, text, [0, 3]) == 0
    assert cached(pipe, text, [0, 2]) > 0


def test_the_plan_says_what_identities_stand_for(look: Any) -> None:
    pipe, _ = look()
    assert pipe._assembly.parts["generate"].rules.identified == {"rows", "images.positions"}


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_sessions_keep_the_state_of_pictures(look: Any, tmp_path: Path, prefix_cache: bool) -> None:
    pipe, package = look(prefix_cache=prefix_cache)
    with pipe.session() as session:
        session.chat(content("w" * 20, [0]), **ASK)
        result = session.chat(content("and this?", [1]), **ASK)
        assert result.usage.cached_tokens >= 16
        assert list(result.tokens) == expected(pipe, package, session.messages[:-1], [0, 1])
        mark = session.checkpoint()
        third = session.chat(content("one more", [2]), **ASK)
        session.rewind(to=mark)
        assert session.chat(content("one more", [2]), **ASK).tokens == third.tokens
        other = session.fork()
        assert other.chat("tell", **ASK).usage.cached_tokens > len(mark.tokens) - 32


def test_sessions_with_pictures_are_saved_with_their_state(look: Any, tmp_path: Path) -> None:
    pipe, package = look()
    source = tmp_path / "one.png"
    _png(source, PICTURES[0])
    message = [{"type": "image", "image": source.read_bytes()}, {"type": "text", "text": "w" * 40}]
    with pipe.session() as session:
        session.chat(message, **ASK)
        session.save(str(tmp_path / "kept"))
        follow = session.chat("and now?", **ASK)
    pipe.close()
    with gp.load(package.path) as other, other.session(str(tmp_path / "kept")) as session:
        result = session.chat("and now?", **ASK)
        assert result.tokens == follow.tokens
        assert result.usage.cached_tokens >= 48


def test_what_a_file_cannot_keep_is_refused(look: Any, tmp_path: Path) -> None:
    pipe, _ = look()
    with pipe.session() as session:
        session.chat(content("w", [0]), **ASK)
        with pytest.raises(gp.errors.CheckpointError, match="ndarray"):
            session.save(str(tmp_path / "kept"))


def _png(path: Path, pixels: Any) -> None:
    from PIL import Image

    Image.fromarray(np.asarray(pixels, np.uint8)).save(path)
