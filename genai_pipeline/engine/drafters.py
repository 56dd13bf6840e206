"""Gives loops what drafts for them: a look-up in their own tokens, or the model of a draft package."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from genai_pipeline.backends.placement import GraphPlacement
from genai_pipeline.backends.protocol import Backend
from genai_pipeline.config import LoadOptions
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.draft_model import DraftPackage, open_draft_model
from genai_pipeline.engine.drafting import Drafting, choose_as_target
from genai_pipeline.engine.graphs import load_graphs, placements
from genai_pipeline.engine.memory import StateMemory
from genai_pipeline.errors import OptionError
from genai_pipeline.graph.plan import ExecutionPlan
from genai_pipeline.speculative.drafter import Drafter
from genai_pipeline.speculative.lookup import LookupDrafter
from genai_pipeline.speculative.loops import check_loop
from genai_pipeline.speculative.options import LookupDrafts, draft_kind
from genai_pipeline.speculative.speculation import Speculation


def add_lookup(loops: Mapping[str, DecodeLoop], plan: ExecutionPlan, options: LoadOptions) -> None:
    """Let loops look drafts up in their own tokens, if that is asked for. Raises OptionError where one cannot."""
    kind = draft_kind(options.draft, plan.package.speculative)
    if isinstance(kind, LookupDrafts):
        for loop in loops.values():
            _add(plan, loop, LookupDrafter(kind.min_match, kind.max_match, kind.tokens))


def add_draft_model(
    loops: Mapping[str, DecodeLoop],
    plan: ExecutionPlan,
    draft: DraftPackage,
    backend: Backend,
    options: LoadOptions,
    memory: StateMemory,
    context: int,
    resources: ExitStack,
) -> tuple[GraphPlacement, ...]:
    """Let a draft package draft for the one loop of a package; gives what its graphs run on.

    Providers that are asked for single components are those of the package that it drafts for. Raises OptionError,
    BackendError or CapacityError.
    """
    (loop,) = loops.values()
    options = replace(options, providers=None if options.providers is None else options.providers.everywhere())
    width = loop.rules.vocabulary
    graphs = load_graphs(draft.plan, backend, options, resources)
    model = open_draft_model(
        draft, graphs, options, memory, choose_as_target, context=context, width=width, resources=resources
    )
    _add(plan, loop, model)
    return placements(draft.plan, graphs, backend.version())


def _add(plan: ExecutionPlan, loop: DecodeLoop, drafter: Drafter) -> None:
    check_loop(plan, plan.stage(loop.id))
    if not loop.reads_any_row:
        message = f"the loop '{loop.id}' cannot speculate: its graph gives the logits of the last token only"
        raise OptionError(message, param="draft", hint='load it with draft="off"')
    loop.drafting = Drafting(loop.id, Speculation(drafter, runs_alone=loop.rules.drafts_alone))
