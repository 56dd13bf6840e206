"""Compiled once and shared; copies apart; limits while running; a missing library has a name."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from genai_pipeline.constraints import compiler as compiler_module
from genai_pipeline.constraints import llg
from genai_pipeline.constraints.compiler import ConstraintCompiler
from genai_pipeline.constraints.mask_worker import MaskWorker
from genai_pipeline.errors import ConstraintRunError, ExtraMissingError


@pytest.fixture
def compiler(bench):
    return ConstraintCompiler(bench.tokenizer, bench.width, bench.tokenizer.end_ids)


@pytest.fixture
def compiled(monkeypatch):
    """Lark texts in the order in which they were compiled."""
    texts = []
    original = llg.GrammarVocabulary.matcher

    def counting(self, text):
        texts.append(text)
        return original(self, text)

    monkeypatch.setattr(llg.GrammarVocabulary, "matcher", counting)
    return texts


def test_equal_demands_compile_once(bench, compiler, compiled):
    first = compiler.compile(bench.spec({"regex": "a+"}))
    assert compiler.compile(bench.spec({"regex": "a+"})) is first
    assert compiler.compile(bench.spec({"regex": "a*"})) is not first
    assert len(compiled) == 2


def test_the_cache_is_bounded_and_keeps_what_was_used_last(bench, compiler, compiled, monkeypatch):
    monkeypatch.setattr(compiler_module, "CACHE_SIZE", 2)
    specs = [bench.spec({"choices": [name]}) for name in "abc"]
    for spec in (specs[0], specs[1], specs[0], specs[2], specs[0]):
        compiler.compile(spec)
    assert len(compiled) == 3
    compiler.compile(specs[1])
    assert len(compiled) == 4


def test_threads_share_one_compilation(bench, compiler, compiled):
    spec = bench.spec({"response_format": {"type": "json_object"}})
    barrier = threading.Barrier(8)
    found = []

    def work():
        barrier.wait()
        found.append(compiler.compile(spec))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1
    assert len(set(map(id, found))) == 1


def test_sequences_of_one_constraint_are_independent(bench, compiler):
    constraint = compiler.compile(bench.spec({"choices": ["ab", "cd"]}))
    one, other = constraint.start(), constraint.start()
    start = bench.allowed(other)
    a, b, c = bench.tokenizer.encode_text("abc", allow_special=False)
    one.accept(a)
    assert bench.allowed(one) == {b}
    assert bench.allowed(other) == start
    other.accept(c)
    assert bench.allowed(one) == {b}
    assert bench.allowed(constraint.start()) == start


def test_threads_give_the_tokens_of_single_runs(bench, compiler):
    constraint = compiler.compile(bench.spec({"response_format": {"type": "json_object"}}))
    alone = [bench.run(constraint.start(), seed, 80) for seed in range(16)]
    together = [None] * 16

    def work(seed):
        together[seed] = bench.run(constraint.start(), seed, 80)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_each_request_has_its_own_ends(bench, compiler):
    constraint = compiler.compile(bench.spec({"regex": "a*"}))
    a, stop = bench.tokenizer.encode_text("a.", allow_special=False)
    assert bench.allowed(constraint.start()) == {a} | bench.tokenizer.end_ids
    assert bench.allowed(constraint.start(frozenset())) == {a}
    assert bench.allowed(constraint.start(frozenset({stop, 0}))) == {a, stop, 0}


def test_a_token_that_ends_is_no_text(bench, compiler):
    a, b = bench.tokenizer.encode_text("ab", allow_special=False)
    state = compiler.compile(bench.spec({"choices": ["aab", "a"]})).start(frozenset({a, b}))
    with pytest.raises(ConstraintRunError, match="no token may follow"):
        bench.allowed(state)


def test_a_whole_answer_is_finished_before_its_end(bench, compiler):
    state = compiler.compile(bench.spec({"choices": ["ab"]})).start(frozenset())
    for token in bench.tokenizer.encode_text("ab", allow_special=False):
        assert not state.finished
        state.accept(token)
    assert state.finished
    with pytest.raises(ConstraintRunError, match="the answer is whole and nothing ends it"):
        bench.allowed(state)


def test_a_token_that_may_not_follow_changes_nothing(bench, compiler):
    state = compiler.compile(bench.spec({"choices": ["ab"]})).start()
    a, b = bench.tokenizer.encode_text("ab", allow_special=False)
    (end,) = bench.tokenizer.end_ids
    for wrong in (b, end, bench.width - 1):
        with pytest.raises(ConstraintRunError, match=f"token {wrong} may not follow"):
            state.accept(wrong)
    assert bench.allowed(state) == {a}
    state.accept(a)
    state.accept(b)
    state.accept(end)
    assert state.finished
    with pytest.raises(ConstraintRunError):
        state.accept(a)


def test_a_row_may_be_wider_or_narrower_than_the_tokenizer(bench, compiler):
    constraint = compiler.compile(bench.spec({"regex": "[a-z]"}))
    wide = np.full(40, -1, np.int32)
    constraint.start().fill(wide)
    narrow = wide[:5].copy()
    narrow[:] = -1
    constraint.start().fill(narrow)
    assert np.array_equal(wide[:5], narrow)
    assert not wide[(bench.width + 31) // 32 :].any()
    small = ConstraintCompiler(bench.tokenizer, 100, bench.tokenizer.end_ids)
    row = np.full(4, -1, np.int32)
    small.compile(bench.spec({"regex": "(?:.|\\n)*"})).start().fill(row)
    assert not np.unpackbits(row.view(np.uint8), bitorder="little")[100:].any()


def test_forced_tokens_are_what_must_follow(bench, compiler):
    text = 'start: "answer: " %json {"type": "boolean"} " (" DIGIT ")"\nDIGIT: /[0-9]/'
    state = compiler.compile(bench.spec({"grammar": text})).start()
    assert bench.text(state.forced()) == "answer: "
    for token in state.forced():
        assert bench.allowed(state) == {token}
        state.accept(token)
    assert state.forced() == []
    for token in bench.tokenizer.encode_text("t", allow_special=False):
        state.accept(token)
    assert bench.text(state.forced()) == "rue ("


def test_forced_tokens_stop_before_an_end(bench, compiler):
    a, b = bench.tokenizer.encode_text("ab", allow_special=False)
    assert compiler.compile(bench.spec({"choices": ["aab"]})).start(frozenset({b})).forced() == [a, a]
    state = compiler.compile(bench.spec({"choices": ["a"]})).start()
    state.accept(a)
    assert state.forced() == []


def test_forced_tokens_are_those_of_the_tokenizer(word_bench):
    text = "hello world yes"
    state = word_bench.start({"grammar": f'start: "{text}" /[0-9]/'})
    assert tuple(state.forced()) == word_bench.tokenizer.encode_text(text, allow_special=False)
    state = word_bench.start({"grammar": 'start: "hello yes" ("!" | "terday!")'})
    assert word_bench.text(state.forced()) == "hello "  # one token or two: only the text tells


AMBIGUOUS = (
    "start: " + " | ".join(f"a{i}" for i in range(8)) + "".join(f'\na{i}: a{i} a{i} | "x" | ""' for i in range(8))
)
STATES = "start: /(a|b)*a(a|b){60}c/"


def follow(bench, state, tokens):
    for token in tokens:
        bench.allowed(state)
        state.accept(token)


def test_an_ambiguous_grammar_ends_in_a_named_error(bench, compiler):
    state = compiler.compile(bench.spec({"grammar": AMBIGUOUS})).start()
    (x,) = bench.tokenizer.encode_text("x", allow_special=False)
    with pytest.raises(ConstraintRunError, match="cannot be followed further"):
        follow(bench, state, [x] * 2000)


def test_states_without_end_run_into_a_named_error(bench, compiler):
    state = compiler.compile(bench.spec({"grammar": STATES})).start()
    letters = bench.tokenizer.encode_text("ab", allow_special=False)
    rng = np.random.default_rng(0)
    with pytest.raises(ConstraintRunError, match="cannot be followed further"):
        follow(bench, state, [letters[choice] for choice in rng.integers(0, 2, 50_000)])


def test_the_worker_fills_rows_beside_the_caller(bench, compiler):
    worker = MaskWorker()
    constraints = [compiler.compile(bench.spec({"choices": [text]})) for text in ("ab", "cd", "ef")]
    states = [constraints[0].start(), None, constraints[1].start(), constraints[2].start(frozenset())]
    for token in bench.tokenizer.encode_text("ef", allow_special=False):
        states[3].accept(token)  # whole, and without an end: nothing may follow
    buffer = np.full((4, (bench.width + 31) // 32), 7, np.int32)
    try:
        for _ in range(3):
            worker.start(states, buffer)
            worker.wait()
            for row, state in ((0, states[0]), (2, states[2])):
                expected = np.zeros_like(buffer[row])
                state.fill(expected)
                assert np.array_equal(buffer[row], expected)
            assert (buffer[1] == 7).all()
            assert not buffer[3].any()
            assert list(worker.errors) == [3]
            assert isinstance(worker.errors[3], ConstraintRunError)
        worker.start([], buffer)
        worker.wait()
        assert worker.errors == {}
    finally:
        worker.close()


def test_without_the_library_the_error_says_how_to_install_it(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    fresh = ConstraintCompiler(bench.tokenizer, bench.width, bench.tokenizer.end_ids)
    with pytest.raises(ExtraMissingError, match="llguidance") as caught:
        fresh.compile(bench.spec({"regex": "a"}))
    assert "genai-pipeline[structured]" in caught.value.hint
