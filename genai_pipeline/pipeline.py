"""The Python API of a loaded package: generate, stream, run, and the tasks that packages do."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack

from genai_pipeline.config import LoadOptions
from genai_pipeline.errors import RequestError
from genai_pipeline.types import RequestOptions, Result, Score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from genai_pipeline.backends.placement import GraphPlacement
    from genai_pipeline.engine.assemble import Assembly
    from genai_pipeline.engine.draft_model import DraftPackage
    from genai_pipeline.engine.request import Emit, Request
    from genai_pipeline.engine.request_reader import RequestReader
    from genai_pipeline.engine.session import Asked, Session
    from genai_pipeline.engine.sessions import Sessions
    from genai_pipeline.engine.streams import AsyncStream, Stream, Submit
    from genai_pipeline.graph.plan import ExecutionPlan
    from genai_pipeline.ops.media import Audio
    from genai_pipeline.preprocess.tokenizer import Tokenizer
    from genai_pipeline.sampling.params import GenerationOptions
    from genai_pipeline.tasks import Transcript, Transcription


class Pipeline:
    """A loaded package. Usable from several threads at once; a context manager that closes."""

    def __init__(
        self,
        plan: ExecutionPlan,
        tokenizers: Mapping[str, Tokenizer],
        options: LoadOptions,
        draft: DraftPackage | None = None,
    ) -> None:
        """Load graphs and start the engine; use ``load`` for a package on disk."""
        from genai_pipeline.backends.registry import make_backend
        from genai_pipeline.engine.assemble import assemble
        from genai_pipeline.engine.request_reader import RequestReader
        from genai_pipeline.importers.compiled_graphs import compiled_graph
        from genai_pipeline.preprocess.prompts import PromptReader
        from genai_pipeline.preprocess.text_inputs import read_fields

        self.plan = plan
        self._options = options
        prompts = PromptReader(plan.package, tokenizers, read_fields(plan))
        self._reader: RequestReader = RequestReader(plan, tokenizers, prompts)
        self._assembly: Assembly = assemble(
            plan, make_backend(options.backend, options.threads), prompts, options, draft, compiled_graph
        )
        self._close = weakref.finalize(self, self._assembly.close)  # once, at the latest with the last reference

    @property
    def context_length(self) -> int:
        """Most tokens a sequence may have, prompt and answer together."""
        return self._assembly.context_length

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers that really run the graphs, each once."""
        return tuple(dict.fromkeys(name for placed in self.placement for name in placed.providers))

    @property
    def placement(self) -> tuple[GraphPlacement, ...]:
        """What each graph runs on: backend, providers with their nodes, and what was asked for and not met."""
        return self._assembly.placement

    @property
    def reasons(self) -> bool:
        """Whether answers may begin with reasoning."""
        return self._reader.reasons

    @property
    def makes_tokens(self) -> bool:
        """Whether the package generates anything token by token."""
        return self._reader.makes_tokens

    def stats(self) -> dict[str, Any]:
        """Counters and gauges of the engine as plain JSON, by the names of docs/telemetry.md; from any thread."""
        return self._assembly.telemetry.snapshot()

    def options(self, **options: Any) -> GenerationOptions:
        """The options in effect for a request that sets ``options``. Raises OptionError."""
        return self._reader.options(options)

    def generate(self, prompt: str | None = None, **request: Unpack[RequestOptions]) -> Result:
        """Run one request to its end.

        A plain ``prompt`` is one user turn when the package has a chat template (``raw=True`` sends it as it is);
        ``messages`` is a conversation, ``tokens`` are ids. Raises the error that ended the request.
        """
        from genai_pipeline.engine.collect import collect_result
        from genai_pipeline.engine.streams import Stream

        with Stream(self._submit(self._reader.read(prompt, request))) as stream:
            return collect_result(stream)

    def stream(self, prompt: str | None = None, **request: Unpack[RequestOptions]) -> Stream:
        """The events of one request as they happen; closing the iterator cancels. Bad requests raise here."""
        from genai_pipeline.engine.streams import Stream

        return Stream(self._submit(self._reader.read(prompt, request)))

    def astream(self, prompt: str | None = None, **request: Unpack[RequestOptions]) -> AsyncStream:
        """``stream`` for asyncio; call it inside a running event loop."""
        from genai_pipeline.engine.streams import AsyncStream

        return AsyncStream(self._submit(self._reader.read(prompt, request)))

    async def aopen(self, prompt: str | None = None, **request: Unpack[RequestOptions]) -> AsyncStream:
        """``astream`` for servers: the request is read, checked and submitted on a worker thread; bad ones raise."""
        from genai_pipeline.engine.streams import AsyncStream

        return await AsyncStream.opened(lambda: self._prompted(self._reader.read(prompt, request)))

    def tokenize(self, prompt: str | None = None, **request: Unpack[RequestOptions]) -> tuple[int, ...]:
        """The tokens of a prompt as a request would have them; it is given as in ``generate``."""
        return self._reader.prompt_tokens(self._reader.read(prompt, request))

    def detokenize(self, tokens: Sequence[int], *, skip_special: bool = False) -> str:
        """The text of tokens, control tokens too unless they are skipped. Raises RequestError."""
        return self._reader.text(tokens, skip_special=skip_special)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token writes, perhaps part of a character; a control token its text."""
        return self._reader.token_bytes(token)

    def score(self, prompt: str | None = None, *, top: int = 0, **request: Unpack[RequestOptions]) -> Score:
        """Log probabilities of the tokens of a prompt, with the ``top`` likeliest alternatives of each.

        The prompt is given as in ``generate``; nothing is generated. Raises RequestError, OptionError or CapacityError.
        """
        from genai_pipeline.engine.collect import collect_result
        from genai_pipeline.engine.streams import Stream

        made = self._reader.read(prompt, {**request, "prompt_logprobs": top, "max_new_tokens": 0})
        with Stream(self._submit(made)) as stream:
            result = collect_result(stream)
        return Score(self._reader.prompt_tokens(made), result.prompt_logprobs or (), result.usage)

    def run(self, inputs: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Run any pipeline: declared inputs by name in, declared outputs by name out.

        Declared parameters stand among the inputs, or in ``parameters={...}``.
        """
        return self._collected(self._reader.read_inputs(inputs, options))

    def _collected(self, request: Request) -> dict[str, Any]:
        """The outputs of a request that runs to its end."""
        from genai_pipeline.engine.collect import collect_result
        from genai_pipeline.engine.streams import Stream

        with Stream(self._submit(request)) as stream:
            return dict(collect_result(stream).outputs)

    def stream_run(self, inputs: Mapping[str, Any], **options: Any) -> Stream:
        """``run`` as it happens: pieces of sounds and texts; the last event has every output."""
        from genai_pipeline.engine.streams import Stream

        return Stream(self._submit(self._reader.read_inputs(inputs, options)))

    async def aopen_run(self, inputs: Mapping[str, Any], **options: Any) -> AsyncStream:
        """``stream_run`` for servers: the request is read, checked and submitted on a worker thread; bad ones raise."""
        from genai_pipeline.engine.streams import AsyncStream

        return await AsyncStream.opened(lambda: self._prompted(self._reader.read_inputs(inputs, options)))

    def transcribe(self, audio: Any, **options: Any) -> Transcript:
        """What is said in a sound: a file, its bytes, or (samples, rate).

        ``options`` are declared parameters and those of generation. Raises RequestError for a package that does not
        transcribe, MediaError for what is no sound.
        """
        with self.transcription(audio, **options) as under_way:
            return under_way.transcript()

    def transcription(self, audio: Any, **options: Any) -> Transcription:
        """``transcribe`` under way: several that are begun before the first is waited for run together."""
        from genai_pipeline.engine.streams import Stream
        from genai_pipeline.tasks import Transcription

        read = self._reader.read_inputs
        return Transcription.start(self.plan.package, audio, options, read, lambda made: Stream(self._submit(made)))

    async def alistened(
        self, name: str, inputs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[float, AsyncStream]:
        """Seconds of the sound ``name`` among the inputs, and ``aopen_run`` of them."""
        from genai_pipeline.engine.streams import AsyncStream

        made = await asyncio.to_thread(self._reader.read_inputs, inputs, options)
        stream = await AsyncStream.opened(lambda: self._prompted(made))
        return float(made.values[f"{name}.seconds"]), stream

    def speak(self, text: str, **options: Any) -> Audio:
        """A text as sound. Raises RequestError for a package that does not speak."""
        from genai_pipeline.tasks import speech, spoken

        task = speech(self.plan.package)
        return spoken(task, self.stream_run(task.inputs(self.plan.package, text, options), **options))

    def stream_speech(self, text: str, **options: Any) -> Generator[Audio]:
        """``speak`` in pieces, as they are made; closing the iterator cancels."""
        from genai_pipeline.tasks import pieces_of, speech

        task = speech(self.plan.package)
        return pieces_of(task, self.stream_run(task.inputs(self.plan.package, text, options), **options))

    def embed(self, texts: str | Sequence[str], *, dimensions: int | None = None, **options: Any) -> NDArray[Any]:
        """Vectors of texts, float32 [n, d], or [d] of a single one.

        ``dimensions``: only the first ones, scaled to length 1 again, for models that were trained for it. Raises
        RequestError for a package that does not embed, OptionError.
        """
        from genai_pipeline.tasks import embedded, embedding, shorten

        package = self.plan.package
        named = {name: options.pop(name) for name in list(options) if name in package.parameters}
        ask = partial(self._asked, named, options)
        vectors = embedded(embedding(package), package, texts, ask)
        wanted = vectors if dimensions is None else shorten(vectors, dimensions)
        return wanted[0] if isinstance(texts, str) else wanted

    def _asked(self, named: Mapping[str, Any], options: Mapping[str, Any], inputs: Mapping[str, Any]) -> Stream:
        """A run of inputs with parameters and options that several have in common."""
        return self.stream_run({**inputs, **named}, **options)

    def session(self, path: str | None = None) -> Session:
        """A conversation that keeps its state between turns; ``path``: one that was saved, to go on with.

        Raises CheckpointError for a file that is damaged or belongs to another package.
        """
        return self._sessions.open(path)

    def close(self) -> None:
        """Stop the engine and free graphs and state; requests that still run end with EngineClosedError."""
        self._close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """Which package this is: its name, and a digest of its metadata and graphs."""
        from genai_pipeline.engine.identity import package_identity

        return package_identity(self.plan)

    @cached_property
    def _sessions(self) -> Sessions:
        from genai_pipeline.engine.sessions import Sessions

        if len(self._assembly.parts) != 1:
            raise RequestError("a session needs a package with one decode loop", hint="use generate or run")
        (part,) = self._assembly.parts.values()
        return Sessions(self._assembly.engine, part.keeper, self.identity, self._ask, shared=self._options.prefix_cache)

    def _ask(self, messages: Sequence[Mapping[str, Any]], salt: bytes, options: Mapping[str, Any]) -> Asked:
        """One turn of a session, ready to be submitted, and its prompt's tokens with their identities."""
        request = self._reader.read(None, {**options, "messages": messages}, salt)
        return (*self._prompted(request), self._reader.identities(request))

    def _prompted(self, request: Request) -> tuple[Submit, tuple[int, ...]]:
        """A request ready to be submitted, and its prompt's tokens."""
        return self._submit(request), self._reader.prompt_tokens(request)

    def _submit(self, request: Request) -> Submit:
        """What hands a request to the engine, once there is somewhere for its events to go."""

        def submit(emit: Emit) -> Callable[[], None]:
            state = self._assembly.engine.submit(replace(request, emit=emit, graphs=self.placement))
            return lambda: self._assembly.engine.cancel(state)  # keeps this pipeline alive as long as the stream

        return submit
