"""``/v1/audio/speech``: a text as sound, sent as it is made."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.ops.media import Audio, wav_header
from genai_pipeline.server.api_errors import ApiError, bad_request, openai_body
from genai_pipeline.server.asking import Asked, require
from genai_pipeline.server.bodies import Fields, read_json
from genai_pipeline.server.openai.speech import Format, parameters, read_speech
from genai_pipeline.server.relay import note_failure, numbered, whole
from genai_pipeline.server.sound_stream import SoundResponse
from genai_pipeline.server.sse import Chunk, EventStreamResponse
from genai_pipeline.server.task_runs import Borrowed, TaskOptions, borrow_for, start

TASK: Final = "speak"
SMALL: Final = 1 << 16  # samples that are written at once on the event loop


async def create(request: Request) -> Response:
    """Speak a text: a WAV file or bare samples, 16 bits each, piece by piece."""
    fields = Fields(await read_json(request))
    model = fields.text("model")
    await require(request, model, TASK)
    body = read_speech(fields)
    fields.skip_rest(request.url.path)
    borrowed = await borrow_for(request, model, TASK)
    given = TaskOptions(parameters(borrowed, body), body.given.options)
    asked = await start(request, borrowed, body.text, given, "input")
    pieces = _pieces(asked, borrowed)
    request.state.exchange.held.push_async_callback(pieces.aclose)
    first = await anext(pieces, None)
    if first is None:
        raise bad_request("the model makes no sound of this text", "input")
    sound = _written(first, pieces, body.format)
    if body.sse:
        return EventStreamResponse(_events(sound, asked))
    kind = "audio/wav" if body.format == "wav" else f"audio/pcm; rate={first.rate}; channels={first.channels}"
    return SoundResponse(sound, kind)


async def _pieces(asked: Asked, borrowed: Borrowed) -> AsyncGenerator[Audio, None]:
    """The pieces of the sound; a package that does not stream gives one at the end. Raises ApiError."""
    streamed = False
    async with aclosing(whole(numbered((asked,)), {})) as events:
        async for _, event in events:
            made = event.audio
            if made is None and event.outputs is not None and not streamed:
                made = event.outputs[borrowed.task.output]
            streamed = streamed or event.audio is not None
            if made is not None:
                yield made


async def _written(first: Audio, pieces: AsyncGenerator[Audio, None], format: Format) -> AsyncGenerator[bytes, None]:
    """The bytes of the sound; the header of a file says that its length is not known."""
    if format == "wav":
        yield wav_header(first.rate, first.channels)
    yield await _pcm(first)
    async with aclosing(pieces):
        async for piece in pieces:
            yield await _pcm(piece)


async def _pcm(piece: Audio) -> bytes:
    return piece.pcm() if piece.samples.size <= SMALL else await asyncio.to_thread(piece.pcm)


async def _events(sound: AsyncGenerator[bytes, None], asked: Asked) -> AsyncIterator[Chunk]:
    try:
        async with aclosing(sound):
            async for data in sound:
                yield {"type": "speech.audio.delta", "audio": base64.b64encode(data).decode("ascii")}
    except ApiError as error:
        note_failure(error)
        yield openai_body(error)
        return
    tokens = asked.prompt_tokens
    counted: dict[str, Any] = {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}
    yield {"type": "speech.audio.done", "usage": counted}


ROUTES = [Route("/v1/audio/speech", create, methods=["POST"])]
