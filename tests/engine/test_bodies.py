"""Bodies of decode loops: operations among the graphs, values around the loop, prompts and options of a loop's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
import genai_pipeline.checking
from genai_pipeline.engine.body_op import BodyOp
from genai_pipeline.engine.body_stage import BodyStage
from genai_pipeline.engine.body_values import BatchValue, RowValue
from genai_pipeline.engine.feeds import BodyFeed, ExpressionFeed
from genai_pipeline.errors import GraphRunError, OptionError, RequestError
from genai_pipeline.testing import TinyPackage, write_package
from genai_pipeline.testing.graphs.senses import embedding_rows

TEXTS = ["a", "bcd", "efghijk", "l" * 17, "mn" * 20, "op", "bcd", "l" * 30]
UPDATES = ["in_place", "append", "scatter"]
ASK = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}


def tokens_of(stream: Any) -> list[int]:
    return [event.token for event in stream if event.token is not None]


def together(pipe: gp.Pipeline, package: TinyPackage, texts: Sequence[str] = TEXTS) -> None:
    """Requests at once get the answers of the package's twin."""
    prompts = [list(package.vocabulary.encode(text)) for text in texts]
    streams = [pipe.stream(tokens=prompt, **ASK) for prompt in prompts]
    for stream, prompt in zip(streams, prompts, strict=True):
        assert tokens_of(stream) == package.expected(prompt, 12)


def looked_up(metadata: dict[str, Any]) -> None:
    """Embeddings come from an operation over a table of the package."""
    body = metadata["stages"][0]["body"]
    take = {"op": "take", "with": {"axis": 0}, "inputs": {"value": "data.table", "index": "loop.tokens"}}
    body[0] = {**take, "outputs": {"result": "embeds"}}
    del metadata["components"]["embed"]
    metadata["data"] = {"table": {"file": "table.npy"}}


def scaled(metadata: dict[str, Any]) -> None:
    """Logits go through two operations that undo each other."""
    body = metadata["stages"][0]["body"]
    body[-1]["outputs"] = {"logits": "raw"}
    for scale, source, target in ((2, "raw", "doubled"), (0.5, "doubled", "logits")):
        affine = {"op": "affine", "with": {"scale": scale}, "inputs": {"value": source}}
        body.append({**affine, "id": target, "outputs": {"result": target}})


@pytest.fixture
def open_with_table(tmp_path: Path) -> Any:
    pipes: list[gp.Pipeline] = []

    def open_(update: str, edit: Any, **load: Any) -> tuple[gp.Pipeline, TinyPackage]:
        package = write_package(tmp_path / f"p{len(pipes)}", "embeds", update=update, edit=edit)
        np.save(package.path / "table.npy", embedding_rows(range(len(package.vocabulary))))
        pipes.append(gp.load(package.path, **load))
        return pipes[-1], package

    yield open_
    for pipe in pipes:
        pipe.close()


@pytest.mark.parametrize("chunk", [4, 24, 512])
@pytest.mark.parametrize("update", UPDATES)
def test_an_operation_gives_the_embeddings(open_with_table: Any, update: str, chunk: int) -> None:
    together(*open_with_table(update, looked_up, max_batch=6, prefill_chunk=chunk))


@pytest.mark.parametrize("update", UPDATES)
def test_operations_give_the_logits(open_tiny: Any, update: str) -> None:
    together(*open_tiny("kv", update=update, edit=scaled, load={"max_batch": 6, "prefill_chunk": 24}))


def test_operations_verify_drafts(open_with_table: Any, eager: Any) -> None:
    pipe, package = open_with_table("append", looked_up, draft="lookup")
    eager(pipe)
    together(pipe, package)


def test_rows_are_cut_to_their_own_tokens() -> None:
    batch = np.arange(2 * 3 * 2).reshape(2, 3, 2)
    value = BatchValue(batch, (3, 1))
    assert [row.shape for row in value.rows] == [(1, 3, 2), (1, 1, 2)]
    assert value.rows is value.rows
    assert np.shares_memory(value.rows[1], batch)
    back = RowValue([row + 1 for row in value.rows], (3, 1), "s").array
    assert back[1].tolist() == [[7, 8], [0, 0], [0, 0]]
    assert (back[0] == batch[0] + 1).all()


def test_rows_that_do_not_stack_run_alone() -> None:
    rows = [np.zeros((1, 2)), np.zeros((1, 3))]
    with pytest.raises(GraphRunError, match=r"\[1, 2\], \[1, 3\]"):
        _ = RowValue(rows, (1, 1), "loop/odd").array


class Counted:
    """How often something ran, and how often the rows had changed."""

    def __init__(self) -> None:
        self.runs = 0
        self.changes = 0
        self._last: dict[int, Any] = {}

    def sees(self, owner: object, members: Any) -> None:
        self.changes += self._last.get(id(owner)) != members
        self._last[id(owner)] = members


def test_what_lies_around_the_loop_is_stacked_when_rows_change(open_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted()
    buffer, run = ExpressionFeed.buffer, BodyStage.run

    def counting(self: ExpressionFeed, context: Any) -> Any:
        counted.runs += 1
        return buffer(self, context)

    def watching(self: BodyStage, context: Any, logit_rows: Any) -> Any:
        counted.sees(self, context.members)
        return run(self, context, logit_rows)

    def heard(metadata: dict[str, Any]) -> None:
        metadata["stages"][1]["prompt"] = "prompt.tokens"

    monkeypatch.setattr(ExpressionFeed, "buffer", counting)
    monkeypatch.setattr(BodyStage, "run", watching)
    pipe, package = open_tiny("cross", captured=True, update="append", edit=heard)
    streams = [pipe.stream(tokens=package.vocabulary.encode(text), **ASK) for text in ("abc", "bcd", "cde")]
    for stream in streams:
        list(stream)
    assert counted.runs == counted.changes
    assert pipe.stats()["runs"]["decode"] > 2 * counted.changes / 3


def test_a_graph_that_reads_only_what_lies_around_runs_when_rows_change(
    open_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted()
    run = BodyStage.run

    def watching(self: BodyStage, context: Any, logit_rows: Any) -> Any:
        if self.component != "encoder":
            return run(self, context, logit_rows)
        before = self._last
        given = run(self, context, logit_rows)
        counted.runs += given is not before
        counted.sees(self, context.members)
        return given

    def listening(metadata: dict[str, Any]) -> None:
        encode, loop = metadata["stages"]
        loop["prompt"] = "prompt.tokens"
        loop["body"].insert(0, {**encode, "id": "inside"})
        metadata["stages"] = [loop]

    monkeypatch.setattr(BodyStage, "run", watching)
    pipe, package = open_tiny("cross", captured=True, update="append", edit=listening)
    together_late(pipe, package)
    assert counted.runs == counted.changes
    assert pipe.stats()["runs"]["decode"] > counted.runs


def together_late(pipe: gp.Pipeline, package: TinyPackage) -> None:
    from dataclasses import replace

    prompts = [list(package.vocabulary.encode(text)) for text in ("abc", "bcd", "cde")]
    streams = []
    for prompt in prompts:
        streams.append(pipe.stream(tokens=prompt, **{**ASK, "max_new_tokens": 60}))
        next(streams[-1])
    for stream, prompt in zip(streams, prompts, strict=True):
        assert tokens_of(stream) == replace(package.twin, start=tuple(prompt)).expected(prompt, 60)[1:]


def test_an_operation_over_what_lies_around_runs_once_for_each_row(
    open_with_table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table comes out of an operation that reads nothing of the loop."""
    calls: list[str] = []
    row = BodyOp._row

    def counting(self: BodyOp, context: Any, index: int) -> Any:
        known = context.batch.sequences[index].id in self._kept
        given = row(self, context, index)
        calls.append("kept" if known else self.id)
        return given

    def doubled(metadata: dict[str, Any]) -> None:
        looked_up(metadata)
        body = metadata["stages"][0]["body"]
        for scale, source, target in ((2, "data.table", "twice"), (0.5, "twice", "words")):
            affine = {"op": "affine", "with": {"scale": scale}, "inputs": {"value": source}}
            body.insert(0, {**affine, "id": target, "outputs": {"result": target}})
        body[2]["inputs"]["value"] = "words"

    monkeypatch.setattr(BodyOp, "_row", counting)
    pipe, package = open_with_table("append", doubled)
    prompt = list(package.vocabulary.encode("abc"))
    assert list(pipe.generate(tokens=prompt, **ASK).tokens) == package.expected(prompt, 12)
    assert calls.count("twice") == calls.count("words") == 2  # once for its prefill, once for its decode steps


def test_written_tokens_are_ids(open_tiny: Any) -> None:
    def written(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["prompt"] = {"tokens": ["<s>", 9, "a"]}
        metadata["stages"][0]["inputs"] = {}
        del metadata["stages"][0]["inputs"]

    pipe, package = open_tiny("kv", edit=written)
    prompt = [package.vocabulary.id("<s>"), 9, package.vocabulary.id("a")]
    assert list(pipe.generate("ignored", **ASK).tokens) == package.expected(prompt, 12)


LANGUAGES = {"language": {"type": "string", "default": "im_start"}}


def templated(*pieces: str, **parameters: Any) -> Any:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["inputs"]["parameters"] = parameters
        metadata["stages"][0]["prompt"] = {"template": list(pieces)}

    return edit


def test_a_template_is_filled_from_parameters(open_tiny: Any) -> None:
    pieces = "<s>", "<|{language}|>", "{word}", "bc"
    edit = templated(*pieces, word={"type": "string", "default": "a"}, **LANGUAGES)
    pipe, package = open_tiny("kv", edit=edit)
    one, tokenizer = package.vocabulary, gp.checking.check_package(package.path).tokenizers["default"]
    for language, word in (("im_start", "a"), ("im_end", "xyz"), ("im_start", "<|im_end|>"), ("im_start", "</s>")):
        prompt = [
            one.id("<s>"),
            one.id(f"<|{language}|>"),
            *tokenizer.encode_text(word, allow_special=False),
            *one.encode("bc"),
        ]
        result = pipe.generate("-", parameters={"language": language, "word": word}, **ASK)
        assert list(result.tokens) == package.expected(prompt, 12)
        assert result.usage.prompt_tokens == len(prompt)


@pytest.mark.parametrize("language", ["klingon", "im_start|><|im_end", "im start", ""])
def test_what_is_no_token_is_refused(open_tiny: Any, language: str) -> None:
    pipe, _ = open_tiny("kv", edit=templated("<|{language}|>", **LANGUAGES))
    with pytest.raises(RequestError, match="no token") as caught:
        pipe.generate("-", parameters={"language": language}, **ASK)
    assert caught.value.param == "parameters.language"


def test_templates_are_checked_for_every_choice(tmp_path: Path) -> None:
    choices = {"language": {"type": "choice", "values": ["im_start", "klingon"], "default": "im_start"}}
    package = write_package(tmp_path, "kv", edit=templated("<sos>", "<|{language}|>", **choices))
    _, problems = gp.validate(package.path)
    found = [(problem.code, problem.at.path, problem.message) for problem in problems if problem.severity == "error"]
    assert [code for code, _, _ in found] == ["tokenizer.token_unknown"] * 2
    assert "<sos>" in found[0][2]
    assert "<|klingon|>" in found[1][2]


def test_unknown_written_tokens_are_reported(tmp_path: Path) -> None:
    def written(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["prompt"] = {"tokens": ["<sos>"]}

    _, problems = gp.validate(write_package(tmp_path, "kv", edit=written).path)
    assert "tokenizer.token_unknown" in [problem.code for problem in problems]


def test_a_loop_has_options_of_its_own(open_tiny: Any) -> None:
    def short(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["generation"] = {"defaults": {"max_new_tokens": 3, "temperature": 0}}

    pipe, package = open_tiny("kv", edit=short, generation={"defaults": {"max_new_tokens": 9, "min_new_tokens": 2}})
    prompt = list(package.vocabulary.encode("abc"))
    result = pipe.generate(tokens=prompt, ignore_eos=True)
    assert list(result.tokens) == package.expected(prompt, 3)
    result = pipe.generate(tokens=prompt, ignore_eos=True, max_new_tokens=5)
    assert list(result.tokens) == package.expected(prompt, 5)


def test_a_loop_bounds_what_a_request_sets(open_tiny: Any) -> None:
    def bound(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["generation"] = {"overrides": {"temperature": {"maximum": 0.5}}}

    pipe, _ = open_tiny("kv", edit=bound)
    with pytest.raises(OptionError, match="temperature"):
        pipe.generate("abc", temperature=0.9, raw=True)
    with pytest.raises(OptionError, match="top_k"):
        pipe.generate("abc", top_k=3, raw=True)


def test_options_of_a_loop_are_checked(tmp_path: Path) -> None:
    def wrong(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["generation"] = {"defaults": {"min_new_tokens": 5, "max_new_tokens": 3}}

    _, problems = gp.validate(write_package(tmp_path, "kv", edit=wrong).path)
    codes = [problem.code for problem in problems if problem.severity == "error"]
    assert codes == ["value.default"]


@pytest.mark.parametrize("change", [{"when": "loop.step > 0"}, {"for_each": "prompt.tokens"}])
def test_what_a_body_cannot_do_is_refused_by_name(tmp_path: Path, change: dict[str, Any]) -> None:
    def odd(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["body"][0] |= change

    _, problems = gp.validate(write_package(tmp_path, "kv", edit=odd).path)
    assert any("decode.body" in problem.message for problem in problems)


def test_a_value_of_another_rank_than_its_port_is_named() -> None:
    made: Any = SimpleNamespace(body={"generate/lengths": BatchValue(np.zeros(3), None)})
    feed = BodyFeed("generate/lengths", np.dtype(np.float32), 2)
    with pytest.raises(GraphRunError, match=r"'lengths' has the shape \[3\] where its port takes 2 axes"):
        feed.buffer(made)
    assert BodyFeed("generate/lengths", np.dtype(np.float32), 1).buffer(made).shape == (3,)
