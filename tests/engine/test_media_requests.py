"""Requests that see and hear, from a path or a part of a message to the words of the answer."""

from __future__ import annotations

import base64
import io
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import genai_pipeline as gp
from genai_pipeline.errors import MediaError, RequestError
from genai_pipeline.testing.media import MediaPackage, write_listener, write_towers, write_vlm
from genai_pipeline.testing.signals import COLOURS, PITCH_WORDS, quarters, tone, wav_bytes

RED = ("red",) * 4
FOUR = ("red", "green", "blue", "white")
OTHER = ("cyan", "black", "yellow", "magenta")
IMAGE = {"type": "image"}


def picture(colours: Any) -> np.ndarray[Any, Any]:
    return quarters(*colours)


def png(colours: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(colours)).save(file, "PNG")
    return file.getvalue()


def url(colours: Any) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(colours)).decode()}"


def user(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


@pytest.fixture(params=["in_place", "append"])
def seeing(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[gp.Pipeline]:
    """The package that names the colours it sees."""
    with gp.load(write_vlm(tmp_path, update=request.param)) as pipe:
        yield pipe


def test_an_image_may_be_given_in_every_form(seeing: gp.Pipeline, tmp_path: Path) -> None:
    file = tmp_path / "four.png"
    file.write_bytes(png(FOUR))
    with file.open("rb") as opened:
        forms = (file, str(file), png(FOUR), url(FOUR), opened, picture(FOUR), Image.fromarray(picture(FOUR)))
        for source in forms:
            assert seeing.generate("what?", images=source).text == "".join(FOUR)
    assert seeing.generate(messages=user({**IMAGE, "image": file}, {"type": "text", "text": "?"})).text == "".join(FOUR)
    part = {"type": "image_url", "image_url": {"url": url(FOUR)}}
    assert seeing.generate(messages=user(part)).text == "".join(FOUR)
    assert seeing.run({"prompt": "what?", "images": [file]}) == {"text": "".join(FOUR)}
    assert seeing.run({"prompt": user(part), "images": None}) == {"text": "".join(FOUR)}


def test_answers_follow_the_order_of_images_and_texts(seeing: gp.Pipeline) -> None:
    text = {"type": "text", "text": " and "}
    answer = seeing.generate(messages=user({**IMAGE, "image": png(OTHER)}, text, IMAGE), images=[picture(FOUR)])
    assert answer.text == "".join((*OTHER, *FOUR))
    assert seeing.generate("no image").text == ""
    assert answer.usage.prompt_tokens == seeing.generate(messages=user(text)).usage.prompt_tokens + 8


def test_another_picture_is_never_answered_from_the_cache(seeing: gp.Pipeline) -> None:
    """The tokens of both prompts are the same; only what stands in the slots differs."""
    for colours in (RED, FOUR, OTHER, RED, FOUR):
        assert seeing.generate("what?" * 8, images=[picture(colours)]).text == "".join(colours)
    again = seeing.generate("what?" * 8, images=[picture(FOUR)])
    assert again.usage.cached_tokens > 0
    assert again.text == "".join(FOUR)
    first = seeing.generate("what?" * 8, images=[picture(FOUR), picture(OTHER)])
    assert first.text == "".join((*FOUR, *OTHER))


def test_requests_in_company_answer_as_alone(tmp_path: Path) -> None:
    package = write_vlm(tmp_path, sums=True)
    asked = [[RED], [], [FOUR, OTHER], [OTHER], [FOUR, RED, OTHER, FOUR], [FOUR]]
    with gp.load(package, prefix_cache=False) as pipe:
        prompts = ["".join(itertools.islice(itertools.cycle("abc"), 3 * i + 1)) for i in range(len(asked))]
        made = list(zip(prompts, asked, strict=True))

        def ask(one: tuple[str, Any]) -> list[int]:
            return list(pipe.generate(one[0], images=[picture(c) for c in one[1]], max_new_tokens=12).tokens)

        alone = [ask(one) for one in made]
        with ThreadPoolExecutor(len(made)) as pool:
            together = list(pool.map(ask, made * 2))
        assert together == alone * 2
        for (prompt, seen), tokens in zip(made, alone, strict=True):
            ids = pipe.tokenize(prompt, images=[picture(c) for c in seen])
            assert tokens == package.answer(ids, [word for colours in seen for word in colours], 12)


def test_chunked_prefills_see_the_same(tmp_path: Path) -> None:
    package = write_vlm(tmp_path, sums=True)
    images = [picture(colours) for colours in (RED, FOUR, OTHER)]
    with gp.load(package, prefill_chunk=5) as chunked, gp.load(package) as whole:
        for prompt in ("a", "what is there to see?"):
            expected = whole.generate(prompt, images=images, max_new_tokens=10).tokens
            assert chunked.generate(prompt, images=images, max_new_tokens=10).tokens == expected


def test_a_session_sees_what_was_shown_before(seeing: gp.Pipeline) -> None:
    with seeing.session() as session:
        shown = [{**IMAGE, "image": png(FOUR)}, {"type": "text", "text": "what?"}]
        assert session.chat(shown).text == "".join(FOUR)
        later = session.chat([{**IMAGE, "image": png(OTHER)}])
        # the words of the first answer stand in the prompt of the second one, too
        assert later.text == "".join((*FOUR, *FOUR, *OTHER))
        assert later.usage.cached_tokens > 0


def test_bad_images_are_refused_by_name_and_the_pipeline_goes_on(seeing: gp.Pipeline, tmp_path: Path) -> None:
    for source in (b"no image", tmp_path / "absent.png", tmp_path, png(FOUR)[:40], "http://example.org/x.png", 5):
        with pytest.raises(MediaError) as caught:
            seeing.generate("x", images=[source])
        assert caught.value.param == "images[0]"
    with pytest.raises(RequestError, match="takes no audio"):
        seeing.generate("x", audio=(tone("200Hz"), 8000))
    assert seeing.generate("x", images=[picture(RED)]).text == "redredredred"


def test_sounds_are_heard_beside_the_prompt_and_in_parts(tmp_path: Path) -> None:
    package: MediaPackage = write_listener(tmp_path / "listener")
    sound = wav_bytes(tone("800Hz", "soft"))
    file = tmp_path / "tone.wav"
    file.write_bytes(sound)
    encoded = {"data": base64.b64encode(sound).decode(), "format": "wav"}
    with gp.load(package) as pipe:
        for source in (sound, file, str(file), (tone("800Hz", "soft", rate=16_000), 16_000), [sound]):
            assert pipe.generate("what?", audio=source).text == "soft800Hz"
        for part in ({"type": "input_audio", "input_audio": encoded}, {"type": "audio", "audio": file}):
            assert pipe.generate(messages=user({"type": "text", "text": "?"}, part)).text == "soft800Hz"
        assert pipe.generate("what?").text == ""
        with pytest.raises(RequestError, match="audio takes one item, not 2") as caught:
            pipe.generate("what?", audio=[sound, sound])
        assert caught.value.param == "audio"
        with pytest.raises(RequestError, match="this package takes no image"):
            pipe.generate("what?", images=[picture(RED)])


def test_two_towers_give_a_vector_for_each_text_and_each_sound(tmp_path: Path) -> None:
    with gp.load(write_towers(tmp_path)) as pipe:
        found = pipe.run({
            "prompt": ["a 400Hz tone", "1600Hz", "400Hz 600Hz"],
            "audio": [(tone("1600Hz", "soft"), 8000), (tone("400Hz"), 8000)],
        })  # fmt: skip
        alike = found["texts"] @ np.asarray(found["sounds"]).T
        np.testing.assert_allclose(alike, [[0, 1], [1, 0], [0, np.sqrt(0.5)]], atol=1e-5)
        one = pipe.run({"prompt": "1600Hz"})
        assert np.shape(one["texts"]) == (1, len(PITCH_WORDS))
        assert len(one["sounds"]) == 0
        with ThreadPoolExecutor(8) as pool:
            texts = [f"{'x' * i} {PITCH_WORDS[i % 8]}" for i in range(24)]
            together = list(pool.map(lambda text: pipe.run({"prompt": text})["texts"][0], texts))
        np.testing.assert_array_equal(together, np.eye(8, dtype=np.float32)[[i % 8 for i in range(24)]])


def test_all_pure_colours_are_told_apart(seeing: gp.Pipeline) -> None:
    for colour in COLOURS:
        assert seeing.generate("?", images=[picture([colour] * 4)]).text == colour * 4
