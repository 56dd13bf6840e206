"""``/v1/completions``: what follows a text, or stands between two."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.errors import GenaiError
from genai_pipeline.pipeline import Pipeline
from genai_pipeline.server.api_errors import ApiError, api_error
from genai_pipeline.server.asking import Asked, ask_pipe, borrow
from genai_pipeline.server.bodies import Fields, read_json
from genai_pipeline.server.fingerprints import fingerprint
from genai_pipeline.server.openai.completions import CompletionBody, read_completion
from genai_pipeline.server.openai.envelope import Envelope
from genai_pipeline.server.openai.texts import Prompt, TextChunks, TextCompletion
from genai_pipeline.server.relay import chunks, numbered, opened, whole
from genai_pipeline.server.replies import json_reply
from genai_pipeline.server.sse import EventStreamResponse

ID: Final = "cmpl"
_PROMPT_PARAMS: Final = ("tokens", "raw")


async def create(request: Request) -> Response:
    """Complete each prompt, streamed or whole."""
    fields = Fields(await read_json(request))
    body = read_completion(fields)
    fields.skip_rest(request.url.path)
    pipe = await borrow(request, body.model)
    answers = [await _asked(request, pipe, body, prompt) for prompt in body.prompts]
    shown = await asyncio.to_thread(_shown, pipe, body) if body.echo else []
    envelope = Envelope.make(ID, answers[0].model, await fingerprint(pipe))
    events = numbered(answers)
    if body.stream:
        choices = body.options.get("n") or pipe.options().n
        writer = TextChunks(envelope, body, shown, pipe.token_bytes, choices)
        return EventStreamResponse(chunks(await opened(request, events, body.names), writer, body.names))
    completion = TextCompletion(envelope, body, shown, pipe.token_bytes)
    async for number, event in whole(events, body.names):
        completion.event(event, number)
    scored = body.logprobs is not None
    return await json_reply(await asyncio.to_thread(completion.object) if scored else completion.object())


async def _asked(request: Request, pipe: Pipeline, body: CompletionBody, prompt: dict[str, Any]) -> Asked:
    try:
        return await ask_pipe(request, pipe, names=body.names, **body.arguments(prompt))
    except ApiError as error:
        if error.param in _PROMPT_PARAMS:
            error.param = "prompt"
        raise


def _shown(pipe: Pipeline, body: CompletionBody) -> list[Prompt]:
    """The prompts as they are shown before their answers. Raises ApiError."""
    scored = body.logprobs is not None
    try:
        return [
            Prompt(
                pipe.detokenize(prompt["tokens"]) if "tokens" in prompt else prompt["prompt"],
                pipe.tokenize(**prompt) if scored else (),
            )
            for prompt in body.prompts
        ]
    except GenaiError as error:
        raise api_error(error, body.names) from error


ROUTES = [Route("/v1/completions", create, methods=["POST"])]
