"""A draft of the inference metadata of a folder: what the structure says, and questions where it says too little."""

from __future__ import annotations

from collections.abc import Iterator

from genai_pipeline.importers.package_writer import flow, wrapped
from genai_pipeline.importers.structure.draft_bindings import (
    feature_ports,
    input_name,
    loop_bindings,
    text_bindings,
)
from genai_pipeline.importers.structure.draft_frames import frame_lines, scores_frames
from genai_pipeline.importers.structure.draft_media import Pictures, media_input_lines, media_stage_lines, program_lines
from genai_pipeline.importers.structure.draft_parts import component_lines, question, todo
from genai_pipeline.importers.structure.joining import ModelParts
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.texts import Texts
from genai_pipeline.importers.structure.unread import unread_lines
from genai_pipeline.metadata.drafts import FIELD

_MEANINGS = ("label what is read, with the operation softmax", "another thing")
_DRAFT = "A draft made from the graphs. What is open is marked TODO; `genai-pipeline validate` lists it."


def draft_text(
    name: str, joined: ModelParts, texts: Texts, origin: str = _DRAFT, pictures: Pictures | None = None
) -> str:
    """The metadata of parts of which nothing, or all but a few choices, is open; ``origin`` heads it."""
    lines = [f"# {origin}"]
    lines += ['schema_version: "1"', f"name: {flow(name)}"]
    if joined.decoder is not None:
        lines += _generator(joined, joined.decoder, texts, pictures)
    else:
        assert joined.encoder is not None
        lines += _reader(joined, joined.encoder, texts)
    return "\n".join([*lines, ""])


def _generator(joined: ModelParts, decoder: Part, texts: Texts, pictures: Pictures | None) -> Iterator[str]:
    """A model that writes text."""
    encoder = joined.encoder
    features = feature_ports(encoder) if encoder is not None else ()
    reads_text = encoder is None or encoder.port_of("tokens") is not None
    yield "inputs:"
    if reads_text:
        yield "  prompt: {modality: text}"
    yield from _feature_inputs(features)
    yield from media_input_lines(joined, texts, pictures)
    yield "outputs:"
    yield "  text: {modality: text, value: generate.text}"
    yield f"tokenizer: {_tokenizer(texts)}"
    yield from program_lines(joined, pictures)
    yield from _components(joined, texts)
    yield "stages:"
    if encoder is not None:
        outputs = {port: f"encoded_{index}" for index, port in enumerate(dict.fromkeys(joined.sources.values()))}
        yield f"  - {{id: encode, run: encoder, inputs: {flow(text_bindings(encoder))}{_outputs(outputs)}}}"
        sources = {port: outputs[source] for port, source in joined.sources.items()}
    else:
        sources = {}
    yield from media_stage_lines(joined)
    yield from unread_lines(decoder)
    yield "  - id: generate"
    yield "    loop: decode"
    yield f"    prompt: {_prompt(joined, texts)}"
    yield "    body:"
    yield from _body(joined, decoder, sources, reads_text)
    yield "    logits: logits"
    for key, ids in texts.never.items():
        yield f"    {key}:"
        yield from wrapped(ids, "      ")
    capacity = next((state.capacity for state in decoder.states if state.capacity is not None), None)
    context = min((size for size in (texts.context, capacity) if size is not None), default=None)
    yield f"limits: {{context_length: {context or todo('how many tokens does the model take, prompt and answer?')}}}"
    yield from _open_logits(decoder)


def _body(joined: ModelParts, decoder: Part, sources: dict[str, str], reads_text: bool) -> Iterator[str]:
    bindings = loop_bindings(decoder, sources, reads_text and joined.encoder is not None)
    if joined.embed is not None:
        (token_port,), (rows,) = joined.embed.facts.inputs, joined.embed.facts.outputs
        plain = "plain" if joined.media is not None else "embeds"
        inputs, outputs = flow({token_port: "loop.tokens"}), flow({rows: plain})
        yield f"      - {{run: embed, inputs: {inputs}, outputs: {outputs}}}"
        if joined.media is not None:
            spliced = "inputs: {into: plain, features: rows, at: media.positions}, outputs: {result: embeds}"
            yield f"      - {{op: splice, {spliced}}}"
    yield "      - run: decoder"
    yield f"        inputs: {flow(bindings)}"
    logits = decoder.logits
    assert logits is not None
    port = flow(logits.value) if logits.certain else flow(logits.alternatives[0])
    yield f"        outputs: {{{port}: logits}}"


def _open_logits(decoder: Part) -> Iterator[str]:
    if decoder.logits is not None and not decoder.logits.certain:
        yield f"{FIELD}: {flow([decoder.logits.question])}"
    elif not decoder.states:
        text = "the decoder keeps no state: does it predict the next token, or does it label each token it reads?"
        yield f"{FIELD}: {flow([text])}"


def _prompt(joined: ModelParts, texts: Texts) -> str:
    """Where decoding starts: with the prompt, or from a token of its own when an encoder has read the prompt."""
    if joined.encoder is None:
        return "prompt.tokens"
    if texts.start is not None:
        return f"{{template: [{flow(texts.start)}]}}"
    return todo("the token that decoding starts from, as {template: [...]}", *texts.choices)


def _reader(joined: ModelParts, encoder: Part, texts: Texts) -> Iterator[str]:
    """A model that reads: vectors of texts, or tensors of whatever a request gives."""
    if encoder.port_of("tokens") is not None and len(encoder.rows) > 0:
        yield from _embedder(joined, encoder, texts)
        return
    if scores_frames(encoder):
        yield from frame_lines(encoder, _components(joined, texts))
        return
    yield "inputs:"
    yield from _feature_inputs(feature_ports(encoder))
    yield "outputs:"
    for port in encoder.facts.outputs:
        yield f"  {input_name(port)}: {{modality: tensor, value: {input_name(port)}_values}}"
    yield from _components(joined, texts)
    yield "stages:"
    outputs = {port: f"{input_name(port)}_values" for port in encoder.facts.outputs}
    yield f"  - {{id: read, run: encoder, inputs: {flow(text_bindings(encoder))}{_outputs(outputs)}}}"
    if encoder.logits is not None:
        yield f"{FIELD}: {flow([question('what do the logits say', *_MEANINGS)])}"


def _embedder(joined: ModelParts, encoder: Part, texts: Texts) -> Iterator[str]:
    vectors = [port for port in encoder.rows if len(port.shape or ()) == 2]
    rows = [port for port in encoder.rows if len(port.shape or ()) == 3]
    port = (vectors or rows or list(encoder.rows))[0]
    yield "inputs:"
    yield "  prompt: {modality: text, list: true}"
    yield "outputs:"
    final = "unit" if not vectors and texts.normalized else "vector"
    yield f"  embedding: {{modality: vector, value: each.{final}}}"
    yield f"tokenizer: {_tokenizer(texts, ends=False)}"
    yield from _components(joined, texts)
    yield "stages:"
    yield "  - id: each"
    yield "    for_each: prompt"
    yield "    body:"
    outputs = _outputs({port.name: "vector" if vectors else "states"})
    yield f"      - {{run: encoder, inputs: {flow(text_bindings(encoder))}{outputs}}}"
    if not vectors:
        kind = texts.pooling or todo("how do rows become one vector? mean | cls | last")
        mask = ", mask: prompt.mask" if encoder.port_of("mask") else ""
        yield "      - op: pool"
        yield f"        with: {{kind: {kind}}}"
        yield f"        inputs: {{states: states{mask}}}"
        yield "        outputs: {result: vector}"
        if texts.normalized:
            yield "      - {op: normalize, with: {order: 2}, inputs: {value: vector}, outputs: {result: unit}}"
    if len(vectors or rows) > 1:
        names = [port.name for port in vectors or rows]
        yield f"{FIELD}: {flow([question('which output is the vector', *names)])}"


def _feature_inputs(ports: tuple[str, ...]) -> Iterator[str]:
    for port in ports:
        yield f"  {input_name(port)}: {{modality: tensor}}  # as the graph takes it; a program can make it of a file"


def _components(joined: ModelParts, texts: Texts) -> Iterator[str]:
    yield "components:"
    named = {
        "media": joined.media,
        "projector": joined.projector,
        "encoder": joined.encoder,
        "embed": joined.embed,
        "decoder": joined.decoder,
    }
    for name, part in named.items():
        if part is not None:
            yield from component_lines(name, part, joined, texts)


def _tokenizer(texts: Texts, *, ends: bool = True) -> str:
    file = (
        flow(texts.tokenizer) if texts.tokenizer else todo("there is no tokenizer.json; which file is the tokenizer?")
    )
    fields = [f"file: {file}"]
    if texts.chat_template is not None:
        fields.append(f"chat_template: {flow(texts.chat_template)}")
    lacking = [str(index) for index in texts.eos if index in texts.lacking]
    if ends and lacking:
        said = f"config.json: eos_token_id has {', '.join(lacking)}, which the vocabulary does not have"
        fields.append(f"eos: {todo(f'{said}; the tokens that end an answer, as a list', *texts.choices)}")
    elif ends and texts.eos:
        fields.append(f"eos: {flow(list(texts.eos))}")
    elif ends and not texts.ends_known:
        fields.append(f"eos: {todo('the tokens that end an answer, as a list', *texts.choices)}")
    return "{" + ", ".join(fields) + "}"


def _outputs(outputs: dict[str, str]) -> str:
    if not outputs:
        return ""
    return f", outputs: {{{', '.join(f'{flow(port)}: {name}' for port, name in outputs.items())}}}"
