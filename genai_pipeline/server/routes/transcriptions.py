"""``/v1/audio/transcriptions``: what is said in a sound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from genai_pipeline.errors import GenaiError
from genai_pipeline.server.api_errors import ApiError, api_error, bad_request, openai_body
from genai_pipeline.server.asking import Asked, follow, queueing, require
from genai_pipeline.server.multipart import read_form
from genai_pipeline.server.openai.transcriptions import (
    TranscriptionBody,
    form_fields,
    read_transcription,
    usage,
    written,
)
from genai_pipeline.server.relay import note_failure, numbered, opened, whole
from genai_pipeline.server.replies import json_reply
from genai_pipeline.server.sse import Chunk, EventStreamResponse
from genai_pipeline.server.task_runs import Borrowed, borrow_for, named_parameter, task_inputs
from genai_pipeline.tasks import Transcript, transcript_of
from genai_pipeline.types import Event

TASK: Final = "transcribe"
_NAMES: Final[Mapping[str, str]] = {}


async def create(request: Request) -> Response:
    """Transcribe a file: text, timed segments, or a stream of texts."""
    fields, files = form_fields(await read_form(request, request.app.state.config.limits.media_bytes))
    model = fields.text("model")
    await require(request, model, TASK)
    body = read_transcription(fields, files)
    fields.skip_rest(request.url.path)
    borrowed = await borrow_for(request, model, TASK)
    seconds, asked = await _listened(request, borrowed, body)
    if body.stream:
        events = await opened(request, numbered((asked,)), _NAMES)
        return EventStreamResponse(_chunks(events, borrowed, seconds))
    outputs: Mapping[str, Any] = {}
    async for _, event in whole(numbered((asked,)), _NAMES):
        outputs = event.outputs or outputs
    transcript = transcript_of(borrowed.task, outputs, seconds)
    made = await asyncio.to_thread(written, transcript, body.format, body.named.get("language"))
    return PlainTextResponse(made) if isinstance(made, str) else await json_reply(made)


async def _listened(request: Request, borrowed: Borrowed, body: TranscriptionBody) -> tuple[float, Asked]:
    """The seconds of a sound, and its transcription under way. Raises ApiError."""
    parameters = dict(body.given.parameters)
    for name, value in body.named.items():
        parameters |= named_parameter(borrowed, name, value)
    options = dict(body.given.options)
    if body.temperature is not None:
        if "temperature" in borrowed.package.parameters or borrowed.package.generation is None:
            parameters |= named_parameter(borrowed, "temperature", body.temperature)
        else:
            options["temperature"] = body.temperature
    inputs = task_inputs(borrowed, body.file, parameters)
    try:
        seconds, stream = await borrowed.pipe.alistened(borrowed.task.input, inputs, queueing(request, options))
    except GenaiError as error:
        raise _named(api_error(error), borrowed) from error
    return seconds, follow(request, borrowed.pipe, stream)


def _named(error: ApiError, borrowed: Borrowed) -> ApiError:
    """What is wrong with the sound is wrong with the field ``file``."""
    owner = borrowed.task.input
    if error.param is None or error.param.partition("[")[0] != owner:
        return error
    return bad_request(error.message.replace(owner, "file", 1), "file", code=error.code or "media_invalid")


async def _chunks(events: Any, borrowed: Borrowed, seconds: float) -> AsyncIterator[Chunk]:
    """Texts as they are made, where the package writes them in order; the whole text at the end."""
    text = _Text(borrowed)
    try:
        async with aclosing(whole(events, _NAMES)) as told:
            async for _, event in told:
                for delta in text.deltas(event, seconds):
                    yield {"type": "transcript.text.delta", "delta": delta}
    except ApiError as error:
        note_failure(error)
        yield openai_body(error)
        return
    assert text.transcript is not None, "a task that ends without an error has outputs"
    yield {"type": "transcript.text.done", "text": text.transcript.text, "usage": usage(text.transcript)}


class _Text:
    """The text of a transcription that streams; what has been sent is never taken back."""

    def __init__(self, borrowed: Borrowed) -> None:
        spec = borrowed.package.outputs[borrowed.task.output]
        loops = {stage.id for stage in borrowed.package.stages if stage.decode is not None}
        owner, _, name = spec.value.partition(".")
        self._live = owner in loops and name == "text" and spec.options.get("segments") is None
        self._task = borrowed.task
        self._made = ""
        self._sent = 0
        self.transcript: Transcript | None = None

    def deltas(self, event: Event, seconds: float) -> list[str]:
        """What an event adds to the text; spaces around all of it do not belong to it."""
        if event.outputs is not None:
            self.transcript = transcript_of(self._task, event.outputs, seconds)
            self._made = self.transcript.text
        elif self._live and event.index == 0:
            self._made = (self._made + event.text).lstrip()
        stable = self._made if event.outputs is not None else self._made.rstrip()
        delta, self._sent = stable[self._sent :], max(self._sent, len(stable))
        return [delta] if delta else []


ROUTES = [Route("/v1/audio/transcriptions", create, methods=["POST"])]
