"""State of sequences outside their rows: swapped out and in, forked, reused from the prefix cache, retained."""

from __future__ import annotations

from collections import abc
from collections.abc import Hashable, Mapping

from genai_pipeline.engine.sequence import NO_ROW, Sequence
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.kv.page_store import Match, PageStore
from genai_pipeline.kv.pool import KvPool, SavedTokens
from genai_pipeline.kv.prefix_keys import prefix_keys

Tokens = abc.Sequence[Hashable]  # by their keys, see ``prefix_keys``
Components = Mapping[str, abc.Sequence[StatePlan]]

RECOMPUTED = 2  # tokens a sequence computes again after any restoring: one alone would round differently


class StateKeeper:
    """Fills the rows of sequences that enter, and keeps what is worth keeping of those that leave.

    Sequences of a loop that reads other values of the request are kept under these values too (``Outer.digest``).
    What is asked for by tokens alone (``pin``, ``export``) finds nothing of such a loop: its sessions take their
    prefixes from the cache while they are there, but do not hold them, and are saved without state.

    ``store`` holds pages outside the rows. ``reuse`` switches prefix reuse between requests, ``keeps`` any reuse.
    Without ``resumes`` a sequence starts on all of its state or none: its first run takes all its tokens.
    """

    def __init__(
        self,
        pool: KvPool,
        store: PageStore,
        components: Components,
        *,
        reuse: bool,
        keeps: bool = True,
        resumes: bool = True,
    ) -> None:
        self._components = components
        self._pool = pool
        self._store = store
        self._reuse = reuse
        self._keeps = keeps and resumes
        self._resumes = resumes

    @property
    def components(self) -> Components:
        """The state entries of the loop's components."""
        return self._components

    def pin(self, tokens: Tokens, salt: bytes) -> Match:
        """Keep what there is of the state of ``tokens`` until it is unpinned."""
        match = self._store.match(tokens, salt)
        self._store.hold(match)
        return match

    def unpin(self, match: Match) -> None:
        """Undo one ``pin``."""
        self._store.drop(match)

    def export(self, tokens: Tokens, salt: bytes) -> tuple[int, SavedTokens]:
        """How many tokens there is kept state of, and that state."""
        return self._store.gather(self._store.match(tokens, salt))

    def adopt(self, tokens: Tokens, salt: bytes, saved: SavedTokens) -> None:
        """Take state of ``tokens`` from outside; what there is no room for is computed again when it is needed."""
        if tokens:
            self._store.insert(tokens, salt, lambda start, stop: self._store.part(saved, start, stop))

    def enter(self, sequence: Sequence) -> int:
        """Restore what can be into the sequence's new, empty row; returns the tokens that are computed now."""
        return self._swap_in(sequence) or self._fork(sequence) or self._hit(sequence)

    def swap_out(self, sequence: Sequence) -> bool:
        """Keep the state of a preempted sequence outside; False when there is no room: it is computed again."""
        length = self._pool.length(sequence.row)
        return self._store.swap_out(sequence.id, self._pool.save(sequence.row, 0, length), length)

    def retain(self, sequence: Sequence) -> None:
        """Put the computed tokens of a sequence that ends into the prefix cache."""
        if not self._reuses(sequence) or sequence.error is not None:
            return
        row = sequence.row
        known = min(self._pool.length(row), len(sequence.tokens))  # drafts beyond a stop were computed for nothing
        length = self._boundary(row, known, step=PAGE_TOKENS)
        if length:
            keys = prefix_keys(sequence.tokens[:length], sequence.identities)
            self._store.insert(keys, _salt(sequence), lambda start, stop: self._pool.save(row, start, stop))

    def forget(self, sequence: Sequence) -> None:
        """Drop what is kept for a sequence that will not come back."""
        self._store.forget(sequence.id)

    def _swap_in(self, sequence: Sequence) -> int:
        swapped = self._store.swap_in(sequence.id)
        if swapped is None:
            return 0
        self._pool.reserve(sequence.row, swapped.num_tokens)
        self._pool.load(sequence.row, 0, swapped.num_tokens, swapped.saved)
        return swapped.num_tokens

    def _fork(self, sequence: Sequence) -> int:
        """Copy the prompt's state from the sequence that computed it, if that still has it.

        The last tokens are computed again, as the next token is chosen from what they give; a beam needs no choice.
        """
        source = sequence.source
        if source is None or source.carried or source.row == NO_ROW or source.num_computed < source.num_prompt:
            return 0
        is_beam = sequence.search is not None and source.tokens == sequence.tokens
        if not is_beam and not self._resumes:
            return 0
        most = sequence.num_prompt if is_beam else sequence.num_prompt - RECOMPUTED
        length = self._boundary(source.row, most)
        if length:
            self._pool.reserve(sequence.row, length)
            self._pool.fork(source.row, sequence.row, length)
        return length

    def _reuses(self, sequence: Sequence) -> bool:
        """Whether prefixes are shared: by everybody, or by those that have the same salt, as turns of a session."""
        return self._keeps and (self._reuse or bool(sequence.salt))

    def _boundary(self, row: int, most: int, step: int = 1) -> int:
        """The largest length up to ``most``, a multiple of ``step``, that a row can be saved or forked at; 0: none."""
        boundaries = self._pool.boundaries(row)
        if boundaries is None:
            return max(0, most - most % step)
        return max((length for length in boundaries if length <= most and length % step == 0), default=0)

    def _hit(self, sequence: Sequence) -> int:
        """Copy the longest cached prefix."""
        limit = len(sequence.tokens) - RECOMPUTED
        scored = sequence.scores is not None  # the logits of every token are read
        if not self._reuses(sequence) or limit <= 0 or scored:
            return 0
        keys = prefix_keys(sequence.tokens, sequence.identities)
        match = self._store.look_up(keys, _salt(sequence), limit)
        if not match.num_tokens:
            return 0
        self._pool.reserve(sequence.row, match.num_tokens)
        loaded = self._store.load(match, self._pool, sequence.row)
        sequence.num_cached = max(sequence.num_cached, min(loaded, sequence.num_prompt))
        return loaded


def _salt(sequence: Sequence) -> bytes:
    """What a sequence's state depends on besides its tokens."""
    return sequence.salt + sequence.outer.digest
