"""``run`` with pictures and sounds in and out: what goes where, what is refused before anything is loaded."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import genai_pipeline as gp
from genai_pipeline.cli.outputs import show_outputs
from genai_pipeline.errors import ExtraMissingError
from genai_pipeline.testing import TinyPackage
from genai_pipeline.testing.media import MediaPackage, write_embedder, write_listener, write_towers, write_vlm
from genai_pipeline.testing.signals import quarters, tone, wav_bytes
from genai_pipeline.testing.voices import spoken, write_speaker, write_transcriber

Command = Callable[..., Any]


@pytest.fixture
def vlm(tmp_path: Path) -> MediaPackage:
    return write_vlm(tmp_path / "vlm")


@pytest.fixture
def speaker(tmp_path: Path) -> Path:
    return write_speaker(tmp_path / "speaker")


@pytest.fixture
def cat(tmp_path: Path) -> Path:
    return saved(tmp_path / "cat.png", "red", "green", "blue", "white")


@pytest.fixture
def dog(tmp_path: Path) -> Path:
    return saved(tmp_path / "dog.png", "black", "yellow", "cyan", "magenta")


@pytest.fixture
def bell(tmp_path: Path) -> Path:
    path = tmp_path / "bell.wav"
    path.write_bytes(wav_bytes(tone("600Hz")))
    return path


def saved(path: Path, *colours: str) -> Path:
    Image.fromarray(quarters(*colours)).save(path)
    return path


CAT, DOG = "redgreenbluewhite", "blackyellowcyanmagenta"


def test_pictures_go_with_a_prompt_in_order(command: Command, vlm: MediaPackage, cat: Path, dog: Path) -> None:
    ran = command("run", vlm, "what?", "--image", cat)
    assert (ran.code, ran.out, ran.err) == (0, f"{CAT}\n", "")
    both = command("run", vlm, "what?", "--image", dog, "--image", cat, "--image", dog, "--json", "--stats")
    found = json.loads(both.out)
    assert (found["text"], "outputs" in found) == (DOG + CAT + DOG, False)
    assert "completion tokens" in both.err
    assert command("run", vlm, "what?").out == "\n"


def test_a_sound_goes_with_a_prompt(command: Command, tmp_path: Path, bell: Path) -> None:
    ran = command("run", write_listener(tmp_path / "listener"), "what?", "--audio", bell)
    assert (ran.code, ran.out) == (0, "loud600Hz\n")
    ran = command("run", write_transcriber(tmp_path / "transcriber"), "--audio", bell)
    assert (ran.code, ran.out) == (0, "loud600Hz\n")


def not_a_text(metadata: dict[str, Any]) -> None:
    """The prompt is what the loop begins with: the package takes a sound alone."""
    del metadata["inputs"]["prompt"]
    (loop,) = (stage for stage in metadata["stages"] if stage.get("loop"))
    loop["prompt"] = {"template": ["<|im_start|>"]}
    (splice,) = (stage for stage in loop["body"] if "op" in stage)
    loop["body"].remove(splice)
    loop["body"][0]["outputs"] = {"inputs_embeds": "embeds"}
    metadata["stages"].remove(next(stage for stage in metadata["stages"] if stage.get("run")))
    metadata["inputs"]["audio"] = {"modality": "audio", "program": "prepare"}
    del metadata["components"]["ear"]
    metadata["stages"][0]["when"] = "present(audio)"


def test_what_takes_no_text_streams_its_answer_too(command: Command, tmp_path: Path, bell: Path) -> None:
    package = write_listener(tmp_path / "ear", edit=not_a_text)
    limits = ("--max-new-tokens", 2, "--ignore-eos")
    ran = command("run", package, "--audio", bell, *limits, "--json", "--stats")
    with gp.load(package.path) as pipe:
        expected = pipe.run({"audio": str(bell)}, max_new_tokens=2, ignore_eos=True)["text"]
    assert (ran.code, json.loads(ran.out)["text"]) == (0, expected)
    assert "2 completion tokens" in ran.err
    assert command("run", package, "--audio", bell, *limits).out == f"{expected}\n"
    assert command("run", package).err.startswith("error: input 'audio' is required")
    for option in (["--session", tmp_path / "x"], ["--system", "x"]):
        ran = command("run", package, "--audio", bell, *option)
        assert (ran.code, ran.out) == (2, "")
        assert f"'tiny-listener' holds no conversation that {option[0]} could" in ran.err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere.png", "error: --image nowhere.png: there is no such file\n"),
        ("folder", "error: --image folder is a folder\nhint: name a file\n"),
        ("/dev/zero", "error: --image /dev/zero is no regular file\nhint: name a file\n"),
        ("", "error: --image a file without a name: there is no such file\n"),
        ("http://x/cat.png", "error: --image http://x/cat.png: an address is not opened; download it first\n"),
    ],
)
def test_what_is_no_file_is_refused_before_a_package_is_fetched(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    ran = command("run", "smollm2-135m", "hi", "--image", name)
    assert (ran.code, ran.out, ran.err) == (2, "", says)


def test_a_damaged_picture_is_named(command: Command, vlm: MediaPackage, cat: Path, bell: Path, tmp_path: Path) -> None:
    for more in ([], ["--session", tmp_path / "kept"]):
        ran = command("run", vlm, "what?", "--image", cat, "--image", bell, *more)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"error: {bell} is no picture in a format that is read\n")
    assert not (tmp_path / "kept").exists()


def test_packages_say_what_they_take(command: Command, tiny: TinyPackage, vlm: MediaPackage, cat: Path) -> None:
    ran = command("run", tiny.path, "hi", "--image", cat)
    assert (ran.code, ran.out, ran.err) == (2, "", "error: this package takes no image\nhint: it takes: text\n")
    ran = command("run", vlm, "hi", "--image", cat, "--out", "x.png")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: 'tiny-vlm' gives no sound and no picture")


def test_a_session_keeps_pictures_and_not_their_names(
    command: Command, vlm: MediaPackage, cat: Path, dog: Path, tmp_path: Path
) -> None:
    kept = ("--session", tmp_path / "kept")
    assert command("run", vlm, "what?", "--image", cat, *kept).out == f"{CAT}\n"
    cat.unlink()
    ran = command("run", vlm, "and?", "--image", dog, *kept)
    assert (ran.code, ran.err) == (0, "")
    with gp.load(vlm) as pipe, pipe.session(str(tmp_path / "kept")) as session:
        contents = [message["content"] for message in session.messages]
        assert [part["type"] for part in contents[0]] == ["image", "text"]
        answer = session.chat("again?").text
    assert (CAT in answer, DOG in answer) == (True, True)
    assert ran.out.startswith(CAT)
    assert ran.out.endswith(f"{DOG}\n")


def test_a_sound_goes_to_its_file(command: Command, speaker: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.wav"
    ran = command("run", speaker, "hello", "--out", out, "--stats")
    assert (ran.code, ran.out) == (0, "")
    times, *graphs = ran.err.splitlines()
    assert times.endswith("s in all")
    assert [line.split(" ")[0] for line in graphs] == ["levels", "voice"]
    with gp.load(speaker) as pipe:
        expected = np.rint(np.array(spoken(pipe.tokenize("hello")), np.float32) * 32767)
    with wave.open(str(out)) as file:
        assert (file.getframerate(), file.getnchannels()) == (8000, 1)
        assert np.frombuffer(file.readframes(1 << 20), "<i2").tolist() == expected.tolist()
    ran = command("run", speaker, "hello", "--out", out, "--json", "--param", "speed=0.5")
    assert json.loads(ran.out) == {"audio": str(out)}


def test_where_a_sound_can_go_is_found_out_before_loading(
    command: Command, speaker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (speaker / "voice.onnx").unlink()  # loading would fail with another error
    (tmp_path / "folder.wav").mkdir()
    for out, says, hint in (
        (None, "'tiny-speaker' gives the sound 'audio', which needs a file", "add --out FILE"),
        ("x.mp3", "--out x.mp3 is no name for it", "'tiny-speaker' gives the sound 'audio': end the name with .wav"),
        ("no/x.wav", "--out no/x.wav cannot be written: there is no folder no", "name a file"),
        ("folder.wav", "--out folder.wav cannot be written: it is a folder", "name a file"),
    ):
        ran = command("run", speaker, "hello", *(("--out", out) if out else ()))
        assert (ran.code, ran.out, ran.err) == (2, "", f"error: {says}\nhint: {hint}\n")
    assert command("run", speaker, "hello", "--out", "x.wav").code == 3


def test_a_full_disk_is_a_named_error(command: Command, speaker: Path, tmp_path: Path) -> None:
    (tmp_path / "full.wav").symlink_to("/dev/full")
    ran = command("run", speaker, "hello", "--out", tmp_path / "full.wav")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {tmp_path}/full.wav cannot be written: No space left on device\n")


def test_other_outputs_are_printed_as_json(command: Command, tmp_path: Path, bell: Path) -> None:
    towers = write_towers(tmp_path / "towers")
    ran = command("run", towers, "--audio", bell, "--audio", bell)
    found = json.loads(ran.out)
    assert (found["texts"], len(found["sounds"])) == ([], 2)
    assert np.argmax(found["sounds"][0]) == 2  # 600 Hz
    assert json.loads(command("run", towers, "600Hz", "--json").out)["texts"][0][2] == 1.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--n", "2"], "--n is for an answer in text, which 'tiny-embedder' does not give"),
        (["--temperature", "0.5"], "--temperature has no effect: this package makes no tokens"),
        (["--stop", "x"], "--stop has no effect: this package makes no tokens"),
        (["--logprobs", "--json"], "--logprobs is for an answer in text, which 'tiny-embedder' does not give"),
        (["--system", "x"], "'tiny-embedder' holds no conversation that --system could be for"),
        (["--session", "x"], "'tiny-embedder' holds no conversation that --session could keep"),
        (["--param", "x=1"], "this package has no input 'x'"),
    ],
)
def test_options_without_effect_are_refused(command: Command, tmp_path: Path, options: list[str], says: str) -> None:
    ran = command("run", write_embedder(tmp_path / "embedder"), "200Hz", *options)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {says}\n")


def test_several_files_for_one_place_are_refused(command: Command, tmp_path: Path, bell: Path) -> None:
    package = write_listener(tmp_path / "ear", edit=not_a_text)
    ran = command("run", package, "--audio", bell, "--audio", bell)
    assert (ran.code, ran.err) == (2, "error: --audio takes one file here, and 2 were given\n")
    ran = command("run", package, "--image", bell)
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: 'tiny-listener' takes no image, so --image has no place")


def test_without_the_extra_a_picture_names_it(process: Any, without: Any, vlm: MediaPackage, cat: Path) -> None:
    with process("run", vlm, "what?", "--image", cat, env=without("PIL")) as running:
        out, errors = running.communicate(timeout=60)
    assert (running.returncode, out) == (ExtraMissingError.exit_code, "")
    assert "genai-pipeline[image]" in errors


def test_pictures_and_lists_of_them_are_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = gp.Image(quarters("red", "green", "blue", "white"))
    outputs = {"image": [picture, None, picture], "caption": "a cat"}
    show_outputs(outputs, tmp_path / "p.png", as_json=True)
    names = [str(tmp_path / "p-1.png"), None, str(tmp_path / "p-3.png")]
    assert json.loads(capsys.readouterr().out) == {"image": names, "caption": "a cat"}
    with Image.open(tmp_path / "p-3.png") as found:
        assert np.array_equal(np.asarray(found), picture.pixels)
    show_outputs({**outputs, "image": picture}, tmp_path / "p.png", as_json=False)
    assert capsys.readouterr().out == "a cat\n"
    with Image.open(io.BytesIO((tmp_path / "p.png").read_bytes())) as found:
        assert found.size == (8, 8)


def test_what_comes_beside_an_answer_follows_it(command: Command, tmp_path: Path, cat: Path) -> None:
    def with_features(metadata: dict[str, Any]) -> None:
        metadata["outputs"]["seen"] = {"modality": "tensor", "value": "features"}

    package = write_vlm(tmp_path / "vlm", edit=with_features)
    ran = command("run", package, "what?", "--image", cat)
    text, beside = ran.out.splitlines()
    assert (ran.code, text, ran.err) == (0, CAT, "")
    colours = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]
    assert json.loads(beside) == {"seen": [[colours]]}
    found = json.loads(command("run", package, "what?", "--image", cat, "--json").out)
    assert (found["text"], found["outputs"]) == (CAT, {"seen": [[colours]]})
    several = command("run", package, "what?", "--image", cat, "--n", 2)
    assert json.loads(several.out.splitlines()[-1]) == {"seen": [[colours]]}
