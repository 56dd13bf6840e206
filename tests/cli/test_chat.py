"""The chat by its parts, without a terminal: every command with its effect, every fault with what to do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.cli.chat.completion import offers
from genai_pipeline.cli.chat.conversation import MAX_FORKS, Forks
from genai_pipeline.cli.chat.model import Model
from genai_pipeline.cli.chat.options import ChatOptions
from genai_pipeline.cli.chat.repl import Repl
from genai_pipeline.cli.chat.slash import SLASHES
from genai_pipeline.cli.chat.state import Chat
from genai_pipeline.errors import GenaiError
from genai_pipeline.importers.progress import Progress, silent
from genai_pipeline.testing import CHATML, TinyPackage, write_package
from genai_pipeline.types import ToolCall


class Script:
    """A terminal whose person says what a test wants, and that remembers what it showed.

    ``interrupts``: Ctrl-C is pressed so often after a piece of an answer. An exception in the script is raised.
    """

    interactive = False

    def __init__(self, *lines: str | type[BaseException]) -> None:
        self.lines = list(lines)
        self.interrupts: list[int] = []
        self.answers: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolCall] = []
        self.shown: list[str] = []
        self.notes: list[str] = []
        self.errors: list[tuple[str, str]] = []
        self.names: list[str] = []
        self._piece = ""
        self._stop: Callable[[], None] = bool

    def read(self, name: str) -> str:
        self.names.append(name)
        line = self.lines.pop(0) if self.lines else EOFError
        if isinstance(line, str):
            return line
        raise line

    def answer(self, text: str) -> None:
        self._piece += text
        for _ in range(self.interrupts.pop(0) if self.interrupts else 0):
            self._stop()

    def reasoning(self, text: str) -> None:
        self.thoughts.append(text)

    def end_answer(self, calls: Sequence[ToolCall]) -> None:
        self.calls += calls
        self.break_off()

    def break_off(self) -> None:
        self.answers.append(self._piece)
        self._piece = ""

    def show(self, text: str) -> None:
        self.shown.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def failure(self, error: GenaiError) -> None:
        self.errors.append((error.message, error.hint))

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        yield silent

    @contextmanager
    def waiting(self, text: str) -> Iterator[Callable[[], None]]:
        yield lambda: None

    @contextmanager
    def interruptible(self, stop: Callable[[], None]) -> Iterator[None]:
        self._stop = stop
        yield


Open = Callable[..., Chat]
ANSWER = "O P Q R"
BOUNDED = {"defaults": {"temperature": 0}, "overrides": {"top_k": {"maximum": 5}}}
GREEDY = {"defaults": {"temperature": 0}}


@pytest.fixture
def opened(tiny: TinyPackage) -> Iterator[Open]:
    """``opened(script, options, package)``: a chat on a terminal with a script, closed after the test."""
    chats = []

    def open_chat(terminal: Script, given: dict[str, Any] | None = None, package: Any = tiny) -> Chat:
        model = Model(str(getattr(package, "path", package)), {}, terminal.progress)
        chats.append(Chat(terminal, model, ChatOptions(given or {}), Forks(model.pipe.session())))
        return chats[-1]

    yield open_chat
    for chat in chats:
        chat.close()


@pytest.fixture
def held(opened: Open) -> Callable[..., tuple[Script, Chat, int]]:
    """``held("hello", "/exit")``: the script of a chat after it was said, the chat, and its exit code."""

    def hold(*lines: Any, options: dict[str, Any] | None = None, **package: Any) -> tuple[Script, Chat, int]:
        script = Script(*lines)
        chat = opened(script, options, **package)
        return script, chat, Repl(chat).run()

    return hold


Held = Callable[..., tuple[Script, Chat, int]]


def turn(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def test_what_is_said_is_a_turn_of_a_session(held: Held) -> None:
    script, chat, code = held("hello", "  ", "again")
    assert (script.answers, script.errors, code) == ([ANSWER, ANSWER], [], 0)
    assert chat.conversation.session.messages == (
        turn("user", "hello"),
        turn("assistant", ANSWER),
        turn("user", "again"),
        turn("assistant", ANSWER),
    )
    prompt = chat.pipe.tokenize(messages=chat.conversation.session.messages[:3])
    assert chat.conversation.session.tokens[: len(prompt)] == prompt


def test_what_begins_with_two_slashes_is_said_with_one(held: Held) -> None:
    _, chat, _ = held("//etc is a folder")
    assert chat.conversation.session.messages[0] == turn("user", "/etc is a folder")


def test_exit_ends_before_the_rest(held: Held) -> None:
    for line in ("/exit", "/quit"):
        script, _, code = held(line, "hello")
        assert (script.answers, script.lines, code) == ([], ["hello"], 0)


def test_the_exit_code_is_of_the_first_error_where_nobody_watches(held: Held, opened: Open) -> None:
    script, _, code = held("/nothing", "/session load /nowhere", "hello")
    assert (len(script.errors), script.answers, code) == (2, [ANSWER], 2)
    watched = Script("/nothing")
    watched.interactive = True
    assert Repl(opened(watched)).run() == 0


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("/rewnd", "there is no command /rewnd", "did you mean '/rewind'?"),
        ("/xyzzy", "there is no command /xyzzy", "/help shows the commands; // says a text that begins with /"),
        ("/exit now", "/exit takes nothing behind it, not 'now'", ""),
        ("/rewind", "this conversation has 0 turns, so 1 cannot be taken back", ""),
        ("/rewind all", "/rewind takes a number of turns, not 'all'", ""),
        ("/image cat.png", "tiny-script takes no image: none of its inputs is one", "it takes: text"),
        ("/audio a.wav", "tiny-script takes no audio: none of its inputs is one", "it takes: text"),
        ("/tool 7", "there is no tool call that waits for a result", ""),
        ("/session sav x", "/session takes save FILE or load FILE", "did you mean 'save'?"),
        ("/session save", "/session save takes a file", "name one behind it"),
        ("/fork a b", "a fork's name has letters, digits, - and _, 40 at most; this one is 'a b'", ""),
        ("/params temprature=1", "unknown option 'temprature'", "did you mean 'temperature'?"),
        ("/params temperature=hot", "temperature must be a number, between 0 and 100, not 'hot'", ""),
        (f"/params temperature=1{'0' * 400}", "temperature must be between 0 and 100, not a number of about 401", ""),
        (f"/params temperature=1{'0' * 5000}", "temperature must be a number, between 0 and 100, not '1000", ""),
        ("/params top_p=0", "top_p must be above 0 and at most 1, not 0", ""),
        ("/params n=2", "n cannot be set in a chat: a conversation goes on with one answer", ""),
        (
            "/params nothing",
            "the option 'nothing' is not set",
            "/params nothing=VALUE sets an option, /params shows them",
        ),
        ("/params priority=hi", "unknown priority 'hi'", "did you mean 'high'?"),
        ("/provider cuda", "provider 'cuda' is not available; this runtime has ", "install 'genai-pipeline[gpu]' "),
        ("/profile", "/profile takes a file; no trace is being written", ""),
        ("/help nix", "there is no command /nix", "did you mean '/image'?"),
    ],
)
def test_faults_are_told_and_change_nothing(held: Held, line: str, message: str, hint: str) -> None:
    script, chat, code = held(line, "hello")
    ((said, advice),) = script.errors
    assert said.startswith(message)
    assert advice.startswith(hint) or line == "/help nix"
    assert script.answers == [ANSWER]
    assert chat.options.request == {}
    assert code != 0


def test_the_system_message_is_shown_set_replaced_and_taken_out(held: Held) -> None:
    script, chat, _ = held("/system", "/system Be brief", "hello", "/system Be\nlong", "/system", "/system -")
    assert script.shown == ["there is no system message", "Be\nlong"]
    assert chat.conversation.session.messages == (turn("user", "hello"), turn("assistant", ANSWER))
    script, chat, _ = held("/system Be brief", "hello", "/rewind")
    assert chat.conversation.session.messages == (turn("system", "Be brief"),)


def test_a_template_that_takes_no_system_message_says_so_at_once(held: Held, tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
        "{% endfor %}" + CHATML
    )
    package = write_package(tmp_path / "strict", "script", chat_template=template, generation=GREEDY)
    script, chat, _ = held("/system Be brief", "hello", package=package)
    assert "no system here" in script.errors[0][0]
    assert (script.answers, chat.conversation.system) == ([ANSWER], None)


def test_turns_are_taken_back(held: Held) -> None:
    script, chat, _ = held("one", "two", "three", "/rewind 2", "/rewind 2", "four")
    said = [message["content"] for message in chat.conversation.session.messages if message["role"] == "user"]
    assert said == ["one", "four"]
    assert script.notes == ["took back 2 turns; 1 is left"]
    assert script.errors == [("this conversation has 1 turn, so 2 cannot be taken back", "")]


def test_forks_go_on_by_themselves(held: Held) -> None:
    script, chat, _ = held("one", "/fork side", "two", "/fork", "/fork main", "three", "/fork side", "/rewind 2")
    contents = {name: [m["content"] for m in held.session.messages] for name, held in chat.forks.all.items()}
    assert contents == {"main": ["one", ANSWER, "three", ANSWER], "side": []}
    assert script.names == ["main", "main", "side", "side", "side", "main", "main", "side", "side"]
    assert script.shown == ["   main  1 turn\n*  side  2 turns"]
    assert script.notes[:2] == ["'side' goes on from 'main'", "this is 'main'"]


def test_forks_are_bounded(held: Held) -> None:
    script, chat, _ = held(*(f"/fork f{number}" for number in range(MAX_FORKS)))
    assert len(chat.forks.all) == MAX_FORKS
    assert [message for message, _ in script.errors] == [f"there are {MAX_FORKS} forks already, as many as may be"]


def test_sessions_go_on_from_files(held: Held, tmp_path: Path) -> None:
    file = tmp_path / "kept.safetensors"
    script, before, _ = held("one", f"/session save {file}")
    again, after, _ = held("lost", f"/session load {file}", "two", "/rewind 2")
    assert script.notes == [f"saved to {file}"]
    assert again.notes == [f"going on with {file}: 1 turn", "took back 2 turns; 0 are left"]
    assert after.conversation.session.messages == ()
    file.write_bytes(b"nothing")
    damaged, kept, _ = held("one", f"/session load {file}")
    assert len(damaged.errors) == 1
    assert kept.conversation.session.messages == before.conversation.session.messages


def test_options_are_shown_with_their_source_set_and_reset(held: Held) -> None:
    script, chat, _ = held(
        "/params",
        "/params top_k=3",
        '/params stop=["Q", "x y"]',
        "hello",
        "/params stop=",
        "/params seed=",
        "/params seed",
        options={"seed": 7},
    )
    rows = dict(line.split(maxsplit=1) for line in script.shown[0].splitlines()[1:])
    assert {name: row.split() for name, row in rows.items() if name in ("temperature", "top_k", "seed")} == {
        "temperature": ["0.0", "package"],
        "top_k": ["0", "built", "in"],
        "seed": ["7", "command", "line"],
    }
    assert script.shown[1:] == [
        "top_k  3  set here",
        'stop  ["Q", "x y"]  set here',
        "seed  null  built in",
    ]
    assert script.answers == ["O P "]
    assert chat.options.request == {"top_k": 3}


def test_options_beside_generation_can_be_set_too(held: Held) -> None:
    script, _, _ = held('/params choices=["O"]', "/params timeout=60", "hello", "/params reasoning_effort=low")
    assert script.shown == ['choices  ["O"]  set here', "timeout  60  set here"]
    assert script.answers == ["O"]
    assert "reasoning_effort" in script.errors[0][0]


def test_overrides_of_the_package_are_kept(held: Held, tmp_path: Path) -> None:
    package = write_package(tmp_path / "strict", "script", generation=BOUNDED)
    script, _, _ = held("/params top_k=9", "/params top_k=5", "/params seed=1", package=package)
    assert [message for message, _ in script.errors] == [
        "this package allows top_k at most 5, not 9",
        "this package does not let a request set seed",
    ]


def test_a_limit_is_told(held: Held) -> None:
    script, _, _ = held("/params max_new_tokens=2", "hello")
    assert (script.answers, script.notes) == (["O P"], ["note: the answer was cut at the token limit"])


def test_figures_are_of_answers_chat_and_memory(held: Held) -> None:
    script, chat, _ = held("/stats", "hello", "again", "/stats")
    empty, full = ({row.split("  ")[0]: row for row in text.splitlines()} for text in script.shown)
    assert list(empty) == ["context", "state in use", "state kept", "memory"]
    assert list(full) == ["last answer", "this chat", *empty]
    session = chat.conversation.session
    first, second = (len(chat.pipe.tokenize(messages=session.messages[:end])) for end in (1, 3))
    assert f"2 answers, {first + second} prompt tokens (" in full["this chat"]
    assert "cached), 10 completion tokens" in full["this chat"]
    assert f"{len(session.tokens)} of 256 tokens" in full["context"]
    assert "tokens/s" in full["last answer"]


def test_another_package_goes_on_with_the_conversation(held: Held, tmp_path: Path) -> None:
    other = write_package(tmp_path / "other", "script", name="other", script=("X", "Y"), generation=GREEDY)
    script, chat, code = held("one", "/fork side", f"/model {other.path}", "two", "/model", "/fork main", "three")
    assert (script.answers, script.errors, code) == ([ANSWER, "XY", "XY"], [], 0)
    assert script.shown == [f"other ({other.path})"]
    assert [m["content"] for m in chat.conversation.session.messages] == ["one", ANSWER, "three", "XY"]


def test_what_another_package_will_not_take_is_told_at_the_switch(held: Held, tmp_path: Path) -> None:
    other = write_package(tmp_path / "other", "script", generation=BOUNDED)
    script, _, _ = held("/params top_k=9", f"/model {other.path}", "/params top_k=", "hello")
    assert [message for message, _ in script.errors] == ["this package allows top_k at most 5, not 9"]
    assert script.notes[-2:] == ["note: /params top_k= resets it", "top_k is set no more"]
    assert script.answers == [ANSWER]


def test_a_package_that_cannot_be_used_leaves_the_old_one(held: Held, broken: TinyPackage, tmp_path: Path) -> None:
    mute = write_package(tmp_path / "mute", "script", chat_template=None)
    script, chat, _ = held("one", f"/model {broken.path}", f"/model {mute.path}", "/model smollm2-1", "two")
    assert script.errors[0][1] == f"genai-pipeline validate {broken.path}"
    assert "no chat template" in script.errors[1][0]
    assert script.errors[2][1] == "did you mean 'smollm2-135m'?"
    assert script.answers == [ANSWER, ANSWER]
    assert len(chat.conversation.session.messages) == 4


@pytest.mark.parametrize(
    ("typed", "missing"), [("decoder=cuda,cpu", "cuda"), ("dml, cpu", "dml"), ("dml cpu", "dml"), ("cpu", None)]
)
def test_lists_of_providers_are_typed_as_on_the_command_line(held: Held, typed: str, missing: str | None) -> None:
    script, _, _ = held(f"/provider {typed}", "/provider", "one")
    (shown,) = script.shown
    assert f"; not available: {missing}\n" in shown if missing else "not available" not in shown
    assert script.answers == [ANSWER]


def test_providers_are_shown_and_changed(held: Held) -> None:
    script, chat, _ = held("one", "/provider", "/provider cpu", "/provider", "two")
    for shown in script.shown:
        assert re.match(r"decoder \(model.onnx\): ort \S+, \d+ nodes on cpu\nthere are: .*\bcpu\b", shown)
    assert (script.answers, len(chat.conversation.session.messages)) == ([ANSWER, ANSWER], 4)


def test_a_trace_is_written_and_ended(held: Held, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    script, _, _ = held("one", f"/profile {trace}", "two", f"/profile {trace}", "/profile", "three")
    events = json.loads(trace.read_text())
    assert len({event["name"] for event in events if event["name"].startswith("sequence ")}) == 1
    assert script.notes == [f"a trace is written to {trace}; /profile ends it", f"the trace {trace} is complete"]
    assert [message for message, _ in script.errors] == [f"the trace {trace} is being written already"]


def test_help_lists_every_command_and_tells_of_one(held: Held) -> None:
    script, _, _ = held("/help", "/help rewind", "/?")
    assert [line.split()[0] for line in script.shown[0].splitlines()] == [f"/{name}" for name in SLASHES]
    assert script.shown[1] == "/rewind [TURNS]\n  Take back what was said last (1 turn)."
    assert script.shown[2] == script.shown[0]


@pytest.fixture
def endless(tmp_path: Path) -> TinyPackage:
    """A package that never ends by itself."""
    return write_package(tmp_path / "endless", "table", context_length=1 << 20)


def test_ctrl_c_stops_an_answer_and_keeps_what_was_said(opened: Open, endless: TinyPackage) -> None:
    script = Script("hello", "/params max_new_tokens=3", "again")
    script.interrupts = [0, 0, 1]
    chat = opened(script, package=endless)
    assert Repl(chat).run() == 0
    first, second = script.answers
    assert len(first) >= 3
    session = chat.conversation.session
    assert [message["content"] for message in session.messages] == ["hello", first, "again", second]
    assert script.notes[0].startswith("stopped: what was said so far is kept")
    assert session.tokens[: len(chat.pipe.tokenize(messages=session.messages[:3]))] == chat.pipe.tokenize(
        messages=session.messages[:3]
    )


def test_ctrl_c_twice_leaves(opened: Open, held: Held, endless: TinyPackage) -> None:
    script = Script("hello", "never said")
    script.interrupts = [2]
    assert Repl(opened(script, package=endless)).run() == 130
    script = Script("hello", KeyboardInterrupt, "never said")
    script.interrupts = [1]
    assert Repl(opened(script, package=endless)).run() == 130
    script, _, code = held(KeyboardInterrupt, "hello", KeyboardInterrupt, KeyboardInterrupt, "never said")
    assert (script.answers, script.lines, code) == ([ANSWER], ["never said"], 130)
    assert script.notes == ["Ctrl-C again leaves, as Ctrl-D does"] * 2


def test_an_answer_that_fails_never_was(held: Held, endless: TinyPackage) -> None:
    script, chat, code = held(
        "/params timeout=0.2", "hello", "/params timeout=", "/params max_new_tokens=1", "again", package=endless
    )
    assert [message for message, _ in script.errors] == ["the request's timeout ran out"]
    assert chat.conversation.session.messages[0]["content"] == "again"
    assert (chat.conversation.turns, code) == (1, 1)


CALL = re.findall("tool|.", '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>')  # as it is tokenized


def caller(folder: Path, *script: str) -> TinyPackage:
    def edit(metadata: dict[str, Any]) -> None:
        metadata.update(tools={"format": "json_tagged"}, reasoning={"open": "<think>", "close": "</think>"})

    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if tools %}{{ tools | length }}{% endif %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return write_package(
        folder, "script", script=script, edit=edit, chat_template=template, generation=GREEDY, context_length=1024
    )


def tools(*names: str) -> list[dict[str, Any]]:
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}}
    return [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in names]


def test_reasoning_is_shown_apart(held: Held, tmp_path: Path) -> None:
    package = caller(tmp_path / "think", "<think>", "O", " P", "</think>", " Q")
    script, chat, _ = held("hello", package=package)
    assert ("".join(script.thoughts), script.answers) == ("O P", [" Q"])
    assert chat.conversation.session.messages[-1] == turn("assistant", " Q")


def test_tool_calls_are_shown_and_their_results_given(held: Held, tmp_path: Path) -> None:
    package = caller(tmp_path / "calls", *CALL, *CALL)
    script, chat, _ = held("hello", "/tool 7", "/tool 8", "/rewind", package=package, options={"tools": tools("f")})
    assert [(call.name, json.loads(call.arguments)) for call in script.calls] == [("f", {"x": 1})] * 4
    assert script.errors == []
    assert "the call of f waits for its result, too" in script.notes
    assert chat.conversation.session.messages == ()


def test_completion_knows_commands_and_what_stands_behind_them(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "files" / "folder").mkdir(parents=True)
    for name in ("one.png", "two.png", ".hidden"):
        (tmp_path / "files" / name).touch()
    chat = opened(Script())
    chat.forks.switch("side")

    def completed(line: str) -> list[str]:
        return [line[: len(line) - offer.replaces] + offer.text for offer in offers(chat, line)]

    assert completed("/s") == ["/system", "/session", "/stats"]
    assert completed("/session ") == ["/session save", "/session load"]
    assert completed(f"/session load {tmp_path}/files/") == [
        f"/session load {tmp_path}/files/{name}" for name in ("folder/", "one.png", "two.png")
    ]
    assert completed(f"/image {tmp_path}/files/.h") == [f"/image {tmp_path}/files/.hidden"]
    assert completed("/fork ") == ["/fork main", "/fork side"]
    assert completed("/params temp") == ["/params temperature="]
    assert completed("/params temperature=") == []
    assert completed("/model smol") == ["/model smollm2-135m"]
    assert "/provider cuda,cpu" in completed("/provider cuda,c")
    assert completed("/help rew") == ["/help rewind"]
    assert [completed(line) for line in ("hello /s", "/system x", "/nothing x", "/s\n/s", "/image /nowhere/x")] == [
        []
    ] * 5
