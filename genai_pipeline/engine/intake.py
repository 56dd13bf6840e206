"""How requests enter a decode loop: what they are granted, what binds their answers, and the sequences they become."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import LoadedGraph
from genai_pipeline.constraints.state import Constraint
from genai_pipeline.engine.admission import Grant, grant
from genai_pipeline.engine.answers import Answers
from genai_pipeline.engine.beams import Search, check_search
from genai_pipeline.engine.loop_options import LoopOptions
from genai_pipeline.engine.loop_prompt import LoopPrompt
from genai_pipeline.engine.outer_values import OuterValues
from genai_pipeline.engine.request import RequestState
from genai_pipeline.engine.rules import LoopRules
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.engine.text_output import TextOutput
from genai_pipeline.errors import OptionError, RequestError
from genai_pipeline.graph.plan import StagePlan
from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.metadata.build import DEFAULT_TOKENIZER
from genai_pipeline.metadata.expressions import evaluate
from genai_pipeline.sampling.beams import BeamSearch
from genai_pipeline.sampling.params import GenerationOptions
from genai_pipeline.sampling.state import sampling_state
from genai_pipeline.sampling.time_marks import TimeRule

_ids = itertools.count()


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a loop grants a request: its tokens, and what its answer is bound to."""

    grant: Grant
    constraint: Constraint | None


class Intake:
    """Of one loop.

    ``extra_pages``: pages that a sequence with some values takes besides those of its tokens. ``reads_any_row``:
    whether its graphs give the logits of any token, as scoring a prompt needs.
    """

    def __init__(
        self,
        stage: StagePlan,
        graphs: Mapping[str, LoadedGraph],
        rules: LoopRules,
        extra_pages: Callable[[Mapping[str, Any]], int],
        *,
        reads_any_row: bool,
    ) -> None:
        assert stage.body is not None
        assert stage.spec.decode is not None
        self._stage = stage
        self._rules = rules
        self._extra_pages = extra_pages
        self._reads_any_row = reads_any_row
        self._outer = OuterValues(stage.body, graphs, known=rules.identified if rules.keeps else None)
        self._answers = Answers(stage.id, rules)
        self._loop = stage.body.id
        self._options = LoopOptions(stage.spec.decode.generation, rules)
        self._prompt = LoopPrompt(stage, rules.tokenizers.get(stage.spec.decode.tokenizer or DEFAULT_TOKENIZER))

    def check(self, state: RequestState) -> None:
        """Refuse what this loop could never do, before anything runs. Raises OptionError or RequestError."""
        options = self._options.of(state.request.options)
        if options.stop and self._rules.decoder is None:
            message = f"'{self._stage.id}' gives no text that could be searched for stop strings"
            raise RequestError(message, param="stop")
        if options.prompt_logprobs is not None and not self._reads_any_row:
            message = f"the graph of '{self._stage.id}' gives the logits of the last token only"
            raise OptionError(message, param="prompt_logprobs")
        form = state.request.form
        self._answers.check(form)
        if form.constraint is not None and self._stage.spec.decode is not None and self._stage.spec.decode.times:
            message = f"'{self._stage.id}' writes marks of time, which no other form of the answer allows"
            raise OptionError(message, param=form.constraint.param)
        check_search(options, form, self._rules.bounds)

    def admit(self, state: RequestState, values: Mapping[str, Any]) -> Admitted | None:
        """What a request that was checked is granted; None while there is no prompt yet.

        ``values``: those of the scope that the loop stands in. Raises PromptTooLongError, CapacityError, RequestError.
        """
        options, form = self._options.of(state.request.options), state.request.form
        if any(values.get(key) is None for key in self._prompt.keys):
            return None
        granted = self._grant(len(self._prompt.tokens(values)), options)
        if granted.note and granted.note not in state.notes:
            state.notes.append(granted.note)
        return Admitted(granted, self._answers.compile(form, self._prompt.text(values)))

    def new_sequences(
        self, state: RequestState, values: Mapping[str, Any], admitted: Admitted | None = None
    ) -> list[Sequence]:
        """A sequence for every choice of a request, further ones to be forked from the first; see ``admit``.

        Raises PromptTooLongError, CapacityError, OptionError or RequestError.
        """
        admitted = admitted or self.admit(state, values)
        assert admitted is not None, "a loop starts once its prompt is there"
        request, prompt = state.request, self._prompt.tokens(values)
        options = self._options.of(request.options)
        constraint, text = admitted.constraint, self._prompt.text(values)
        outer, not_yet, times = self._outer.of(values), self._not_yet(options), self._times(values)
        identities, extra = self._prompt.identities(values), self._extra_pages(values)
        granted = self._grant(len(prompt), options, extra) if extra else admitted.grant
        sequences: list[Sequence] = []
        for choice in range(options.n):
            answer = self._answers.parts(request.form, options, constraint, text)
            sequences.append(
                Sequence(
                    next(_ids),
                    state,
                    self._loop,
                    prompt,
                    max_tokens=granted.max_new_tokens,
                    seed=request.seed,
                    choice=choice,
                    text=answer.text,
                    source=sequences[0] if sequences else None,
                    salt=request.salt,
                    outer=outer,
                    not_yet=not_yet,
                    sampling=sampling_state(options, prompt, times),
                    constraint=answer.constraint,
                    budget=answer.budget,
                    options=options,
                    chunks=self._rules.chunks,
                    identities=identities,
                    extra_pages=extra,
                )
            )
        return sequences

    def search(self, answers: list[Sequence]) -> Search | None:
        """The beam search for a request's answers, if it asks for one: its beams share the first answer's prompt."""
        first, options = answers[0], answers[0].options
        if options.num_beams == 1:
            return None
        prompt = tuple(first.tokens)
        beams: list[Sequence] = []
        for index in range(options.num_beams):
            beams.append(
                Sequence(
                    next(_ids),
                    first.request,
                    first.loop,
                    prompt,
                    max_tokens=first.max_tokens,
                    seed=first.seed,
                    choice=index,
                    text=TextOutput(None, ()),
                    source=beams[0] if beams else None,
                    salt=first.salt,
                    outer=first.outer,
                    not_yet=first.not_yet,
                    sampling=sampling_state(options, prompt, first.sampling.times if first.sampling else None),
                    options=options,
                    chunks=first.chunks,
                    identities=first.identities,
                    extra_pages=first.extra_pages,
                )
            )
        return Search(answers, beams, BeamSearch(options, first.max_tokens, self._rules.end_tokens(options)))

    def _grant(self, num_prompt: int, options: GenerationOptions, extra: int = 0) -> Grant:
        """The token limit; a package's own default caps a request and is never a reason to refuse it."""
        bounds = self._rules.bounds.shared(options.num_beams)
        bounds = replace(bounds, pool_tokens=max(0, bounds.pool_tokens - extra * PAGE_TOKENS))
        if options.max_new_tokens is not None and options.sources.get("max_new_tokens") == "package":
            most = min(options.max_new_tokens, bounds.max_new_tokens or options.max_new_tokens)
            return grant(num_prompt, None, replace(bounds, max_new_tokens=most))
        return grant(num_prompt, options.max_new_tokens, bounds)

    def _times(self, values: Mapping[str, Any]) -> TimeRule | None:
        """How tokens mark times in an answer, if they are wanted."""
        decode, rule = self._stage.spec.decode, self._rules.times
        assert decode is not None
        if rule is None or decode.times is None or decode.times.when is None:
            return rule
        wanted = evaluate(decode.times.when.expr, lambda name: values[self._stage.reads[name]])
        return replace(rule, wanted=bool(wanted))

    def _not_yet(self, options: GenerationOptions) -> NDArray[np.int64] | None:
        """Tokens that may not be chosen before the request's minimum length: all that would end it, too."""
        if not options.min_new_tokens:
            return None
        return np.array(sorted({*self._rules.suppressed, *self._rules.end_tokens(options)}), np.int64)
