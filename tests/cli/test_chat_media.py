"""Pictures and sounds in a chat: tried at once, shown, said with the next message, kept with the conversation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import genai_pipeline as gp
from genai_pipeline.testing import TinyPackage
from genai_pipeline.testing.media import MediaPackage, write_listener, write_vlm
from genai_pipeline.testing.signals import quarters, tone, wav_bytes

Command = Callable[..., Any]
CAT, DOG = "redgreenbluewhite", "blackyellowcyanmagenta"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to chat in, with a cat, a dog and a bell."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(quarters("red", "green", "blue", "white")).save("cat.png")
    Image.fromarray(quarters("black", "yellow", "cyan", "magenta")).save("dog.png")
    Path("bell.wav").write_bytes(wav_bytes(tone("600Hz")))
    return tmp_path


@pytest.fixture
def vlm(folder: Path) -> MediaPackage:
    return write_vlm(folder / "vlm")


@pytest.fixture
def said(command: Command, vlm: MediaPackage) -> Callable[..., Any]:
    """``said("/image cat.png", "what?")``: a chat through pipes; its answers are the lines of ``out``."""

    def chat(*lines: str, package: Any = vlm, options: tuple[Any, ...] = ()) -> Any:
        return command("chat", package, *options, stdin="".join(f"{line}\n" for line in lines).encode())

    return chat


def test_pictures_go_with_what_is_said_next_and_only_that(said: Any) -> None:
    ran = said("/image cat.png", "/image dog.png", "/image", "what?", "/image", "/rewind", "and?")
    assert (ran.code, ran.out) == (0, f"{CAT}{DOG}\n\n")
    assert ran.err.splitlines() == [
        "cat.png goes with what you say next",
        "dog.png goes with what you say next",
        "cat.png",
        "dog.png",
        "no image waits; /image FILE adds one",
        "took back 1 turn; 0 are left",
    ]
    again = said("/image cat.png", "/image dog.png", "/image", "what?", "/image", "/rewind", "and?")
    assert (again.out, again.err) == (ran.out, ran.err)


def test_a_sound_is_heard(said: Any, folder: Path) -> None:
    ran = said("/audio bell.wav", "what?", package=write_listener(folder / "listener"))
    assert (ran.code, ran.out) == (0, "loud600Hz\n")


def test_what_waits_can_be_taken_out(said: Any) -> None:
    ran = said("/image cat.png", "/image -", "what?", "/image dog.png", "and?")
    assert (ran.code, ran.out) == (0, f"\n{DOG}\n")
    assert "1 taken out" in ran.err.splitlines()


def test_what_cannot_be_read_is_refused_at_once_and_nothing_waits(said: Any, folder: Path) -> None:
    (folder / "empty.png").touch()
    ran = said("/image nowhere.png", "/image .", "/image bell.wav", "/image empty.png", "/audio bell.wav", "what?")
    assert (ran.code, ran.out) == (2, "\n")
    assert [line for line in ran.err.splitlines() if line.startswith("error: ")] == [
        "error: nowhere.png: there is no such file",
        "error: . is a folder",
        "error: bell.wav is no picture in a format that is read",
        "error: empty.png is empty",
        "error: tiny-vlm takes no audio: none of its inputs is one",
    ]
    ran = said(*["/image cat.png"] * 5, "/image", "what?")
    assert (ran.code, ran.out) == (2, f"{CAT * 4}\n")
    assert "images takes at most 4 items, not 5" in ran.err


def test_forks_and_rewinds_know_pictures(said: Any) -> None:
    ran = said("/image cat.png", "one?", "/fork side", "/image dog.png", "two?", "/rewind", "/fork main", "three?")
    assert (ran.code, ran.err.count("error")) == (0, 0)
    one, two, three = ran.out.splitlines()
    assert (one, DOG in two, CAT in three, DOG in three) == (CAT, True, True, False)


def test_a_saved_conversation_outlives_its_pictures(said: Any, folder: Path, vlm: MediaPackage) -> None:
    first = said("/image cat.png", "one?", "/session save kept", "two?")
    (folder / "cat.png").write_bytes((folder / "dog.png").read_bytes())
    second = said("/session load kept", "two?")
    assert (second.code, second.out) == (0, first.out.splitlines()[1] + "\n")
    assert CAT in second.out
    with gp.load(vlm) as pipe, pipe.session("kept") as session:
        (picture, text) = session.messages[0]["content"]
        assert (picture["type"], text) == ("image", {"type": "text", "text": "one?"})
    third = said("/image dog.png", "three?", options=("--session", "kept"))
    assert (third.code, third.out.endswith(f"{DOG}\n")) == (0, True)


def test_another_package_takes_what_was_said_or_says_what_it_does_not(
    said: Any, tiny: TinyPackage, vlm: MediaPackage
) -> None:
    ran = said("/image cat.png", f"/model {tiny.path}", "what?", f"/model {tiny.path}", "and?", f"/model {vlm.path}")
    assert (ran.code, ran.out) == (2, f"{CAT}\n")
    assert "error: files wait to go with what you say next" in ran.err
    assert ran.err.count("this package takes no image in messages") == 2  # when it was loaded, and when it was asked
    assert "does not suit it; /rewind" in ran.err


def test_a_turn_that_fails_keeps_what_waits(said: Any) -> None:
    ran = said("/image cat.png", "/params max_new_tokens=1000000", "what?", "/params max_new_tokens=", "what?")
    assert (ran.code, ran.out) == (2, f"{CAT}\n")
