"""Placeholders: exact expansion and positions, who may write one, and what is refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.expressions import parse
from genai_pipeline.metadata.load import load_package
from genai_pipeline.metadata.model import Binding, InputSpec, PlaceholderSpec
from genai_pipeline.preprocess.items import with_digest
from genai_pipeline.preprocess.placeholders import Placeholders, full_text, once, run_sizes, runs_of
from genai_pipeline.preprocess.plain_encoder import Piece
from genai_pipeline.preprocess.prompts import PromptReader
from genai_pipeline.preprocess.slots import Placed, spread
from genai_pipeline.preprocess.text_checks import check_text
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Location, Problems
from genai_pipeline.testing.media import PARTS_TEMPLATE, MediaPackage, write_vlm
from genai_pipeline.testing.signals import quarters
from genai_pipeline.testing.vocabulary import CHATML

AT = Location("x.yaml", path="inputs.images.placeholder")
RED, BLUE = quarters(*["red"] * 4), quarters(*["blue"] * 4)
SECOND = quarters("red", "green", "blue", "white")
IMAGE = {"type": "image"}


def images(token: str = "<image>", *, count: Any = None, expand: str | None = None, name: str = "images") -> InputSpec:
    binding = None if count is None else Binding(parse(count, AT), str(count), AT)
    return InputSpec(AT, name, "image", placeholder=PlaceholderSpec(AT, token, binding, expand), is_list=True)


def item(**fields: Any) -> dict[str, Any]:
    return with_digest(fields)


def expanded(
    tokenizer: Tokenizer, spec: InputSpec, pieces: Sequence[Piece], items: Sequence[Any], parameters: Any = None
) -> tuple[str, Placed]:
    """The text and the tokens of a prompt."""
    places = Placeholders([spec], tokenizer)
    by_input = {spec.name: list(items)}
    found = places.expand(pieces, by_input, parameters or {}, "the prompt")
    ids = spread(tokenizer.encode_pieces(once(found)), runs_of(found))
    return full_text(found), places.placed(ids, run_sizes(found, by_input), by_input, b"")


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text(st.sampled_from("ab <image>\n|é"), max_size=12), min_size=1, max_size=5),
    counts=st.lists(st.integers(1, 40), min_size=4, max_size=4),
)
def test_the_pieces_joined_are_the_text_and_every_slot_is_where_it_says(
    byte_tokenizer: Tokenizer, texts: list[str], counts: list[int]
) -> None:
    mark = Piece("<image>", control=True)
    pieces = [piece for text in texts for piece in (Piece(text), mark)][:-1]
    counts = counts[: len(texts) - 1]
    text, placed = expanded(byte_tokenizer, images(count="images.tokens"), pieces, [item(tokens=n) for n in counts])
    written = "".join(a + "<image>" * n for a, n in zip(texts, [*counts, 0], strict=True))
    assert text == written
    assert byte_tokenizer.decode(placed.ids, skip_special=False) == written
    assert [len(slots) for slots in placed.positions["images"]] == counts
    slots = np.concatenate([np.zeros(0, np.int64), *placed.positions["images"]])
    assert slots.tolist() == [i for i, token in enumerate(placed.ids) if token == byte_tokenizer.token_id("<image>")]
    before = 0
    for text, count, places in zip(texts, counts, placed.positions["images"], strict=False):
        before += len(byte_tokenizer.encode_pieces([Piece(text)]))
        assert places.tolist() == list(range(before, before + count))
        before += count


def test_identities_are_ranges_of_slots_with_what_goes_there(byte_tokenizer: Tokenizer) -> None:
    pieces = [Piece("<image>", control=True)] * 2
    one, other = item(tokens=2, pixels=np.ones(3)), item(tokens=2, pixels=np.zeros(3))
    spec = images(count="images.tokens")
    first = expanded(byte_tokenizer, spec, pieces, [one, other])[1].identities
    assert [(start, stop) for start, stop, _ in first] == [(0, 2), (2, 4)]
    assert len({digest for *_, digest in first}) == 2
    assert first == expanded(byte_tokenizer, spec, pieces, [dict(one), dict(other)])[1].identities
    swapped = expanded(byte_tokenizer, spec, pieces, [other, one])[1].identities
    assert [digest for *_, digest in swapped] == [digest for *_, digest in reversed(first)]


def test_a_share_of_several_runs_has_an_identity_for_each(byte_tokenizer: Tokenizer) -> None:
    spec = images(expand="{% for row in range(images.rows) %}<s>{{ features(3) }}\n{% endfor %}end{{ features(1) }}")
    text, placed = expanded(byte_tokenizer, spec, [Piece("a"), Piece("<image>", control=True)], [item(rows=2)])
    assert text == "a<s><image><image><image>\n<s><image><image><image>\nend<image>"
    ranges = [(start, stop) for start, stop, _ in placed.identities]
    assert [stop - start for start, stop in ranges] == [3, 3, 1]
    assert len({digest for *_, digest in placed.identities}) == 3
    assert placed.positions["images"][0].tolist() == [i for start, stop in ranges for i in range(start, stop)]
    assert placed.ids.count(byte_tokenizer.token_id("<s>")) == 2, "control tokens of expand are control tokens"


def test_expand_reads_fields_and_parameters_and_short_arrays(byte_tokenizer: Tokenizer) -> None:
    source = "{{ parameters.name }}{{ images.grid[1] }}{{ features(images.grid[0] * images.grid[1]) }}"
    fields = {"grid": np.array([2, 3]), "pixels": np.zeros(10_000)}
    mark = [Piece("<image>", control=True)]
    parameters = {"parameters.name": "<s>"}
    text, placed = expanded(byte_tokenizer, images(expand=source), mark, [item(**fields)], parameters)
    assert text == "<s>3" + "<image>" * 6
    assert byte_tokenizer.token_id("<s>") not in placed.ids, "what the request gives is text"
    with pytest.raises(RequestError, match=r"images\.placeholder\.expand failed") as caught:
        expanded(byte_tokenizer, images(expand="{{ features(images.pixels.x.y) }}"), mark, [item(**fields)])
    assert caught.value.param == "images"


@pytest.mark.parametrize(
    ("share", "fields", "says"),
    [
        ({"count": "images.tokens"}, {"tokens": 0}, "takes 1 to 1048576 slots of the prompt, not 0"),
        ({"count": "images.tokens"}, {"tokens": 1 << 40}, "takes 1 to 1048576 slots"),
        ({"count": "images.tokens / 2"}, {"tokens": 3}, "takes 1 to 1048576 slots of the prompt, not 1.5"),
        ({"count": "images.grid[5]"}, {"grid": np.ones(2)}, "out of range"),
        ({"count": "images.tokens"}, {}, "nothing publishes"),
        ({"expand": "{{ features('x') }}"}, {}, "takes 1 to 1048576 slots"),
        ({"expand": "{{ features(-1) }}"}, {}, "takes 1 to 1048576 slots"),
        ({"expand": "<image>{{ features(1) }}"}, {}, "writes '<image>' itself"),
        ({"expand": "{{ raise_exception('too wide') }}"}, {}, "too wide"),
        ({"expand": "{% for i in range(10**9) %}x{% endfor %}"}, {}, "images.placeholder.expand failed"),
    ],
)
def test_shares_that_cannot_be_are_refused_by_name(
    byte_tokenizer: Tokenizer, share: Any, fields: Any, says: str
) -> None:
    with pytest.raises(RequestError, match=says) as caught:
        expanded(byte_tokenizer, images(**share), [Piece("<image>", control=True)], [item(**fields)])
    assert caught.value.param == "images"


def test_a_count_may_be_any_expression_over_sizes_and_parameters(byte_tokenizer: Tokenizer) -> None:
    spec = images(count="images.grid[0] * images.grid[1] + parameters.extra")
    mark = [Piece("<image>", control=True)]
    _, placed = expanded(byte_tokenizer, spec, mark, [item(grid=np.array([2, 3]))], {"parameters.extra": 4})
    assert len(placed.positions["images"][0]) == 10


@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece_bpe", "unigram", "word_piece"])
def test_tokens_around_slots_are_those_of_the_text_alone(loaded: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = loaded[kind]
    pieces = [Piece("the fox "), Piece("<image>", control=True), Piece(" and the dog")]
    _, placed = expanded(tokenizer, images(count=5), pieces, [item(a=1)])
    once_only = tokenizer.encode_pieces(pieces)
    place = once_only.index(tokenizer.token_id("<image>"))
    assert placed.ids == once_only[:place] + (once_only[place],) * 5 + once_only[place + 1 :]
    assert placed.positions["images"][0].tolist() == list(range(place, place + 5))


# --- whole requests


Reader = Callable[..., PromptReader]


@pytest.fixture
def vlm(tmp_path: Path) -> Callable[..., tuple[MediaPackage, PromptReader]]:
    """Writes the package that sees, and makes its reader."""

    def make(**options: Any) -> tuple[MediaPackage, PromptReader]:
        package = write_vlm(tmp_path / "vlm", **options)
        spec, problems = load_package(package)
        assert spec is not None, problems
        found = Problems()
        tokenizers = check_text(spec, {}, found)
        assert not found.failed, found.sorted()
        return package, PromptReader(spec, tokenizers)

    return make


def turn(package: MediaPackage, *content: str | int) -> tuple[int, ...]:
    """The tokens of one turn of a user: texts, and numbers of slots."""
    vocabulary = package.vocabulary
    ids: list[int] = [vocabulary.id("<|im_start|>"), *vocabulary.encode("user\n")]
    for part in content:
        ids += vocabulary.encode(part) if isinstance(part, str) else [package.slot] * part
    return (*ids, vocabulary.id("<|im_end|>"), *vocabulary.encode("\n"), *vocabulary.chat_prompt())


def test_a_plain_prompt_with_images_is_one_turn_with_the_images_first(vlm: Any) -> None:
    package, reader = vlm()
    values = reader.prompt("What?", images=[RED, BLUE])
    assert values["prompt.tokens"] == turn(package, 8, "What?")
    assert [slots.tolist() for slots in values["images.positions"]] == [[3, 4, 5, 6], [7, 8, 9, 10]]
    assert [(start, stop) for start, stop, _ in values["prompt.identities"]] == [(3, 7), (7, 11)]
    assert values["prompt.text"].count("<image>") == 8
    np.testing.assert_equal(reader.inputs({"prompt": "What?", "images": [RED, BLUE]}), values)
    assert [one["positions"].tolist() for one in values["images"]] == [[3, 4, 5, 6], [7, 8, 9, 10]]
    single = reader.prompt("What?", images=RED)
    assert single["prompt.tokens"] == turn(package, 4, "What?")
    assert single["images.pixels"][0].shape == (3, 4, 4)


def test_without_images_nothing_is_there_but_empty_lists(vlm: Any) -> None:
    package, reader = vlm()
    values = reader.prompt("What?")
    assert values["prompt.tokens"] == turn(package, "What?")
    assert values["images"] == values["images.pixels"] == values["images.positions"] == []
    assert values["prompt.identities"] == ()
    assert values == reader.inputs({"prompt": "What?"}) == reader.prompt("What?", images=[])
    assert reader.prompt(messages=[{"role": "user", "content": "What?"}]) == values


@pytest.mark.parametrize(("template", "between"), [(PARTS_TEMPLATE, ""), (CHATML, "\n")])
def test_parts_stand_where_they_stood(vlm: Any, template: str, between: str) -> None:
    """A template that takes texts only gets the placeholder's token, in a line of its own."""
    package, reader = vlm(chat_template=template)
    content = [{"type": "text", "text": "a"}, {**IMAGE, "image": RED}, {"type": "text", "text": "b"}, IMAGE]
    values = reader.prompt(messages=[{"role": "user", "content": content}], images=[BLUE])
    assert values["prompt.tokens"] == turn(package, f"a{between}", 4, f"{between}b{between}", 4)
    assert values["images.pixels"][0][0].all()
    assert values["images.pixels"][1][2].all()


@pytest.mark.parametrize("template", [PARTS_TEMPLATE, CHATML])
def test_who_types_a_placeholder_types_text(vlm: Any, template: str) -> None:
    package, reader = vlm(chat_template=template)
    forged = "<image> and <image>"
    plain = [package.vocabulary.id(character) for character in "<image>"]
    for values in (
        reader.prompt(forged),
        reader.prompt(messages=[{"role": "user", "content": [{"type": "text", "text": forged}]}]),
        reader.prompt("x", system=forged),
    ):
        assert package.slot not in values["prompt.tokens"]
        assert values["prompt.identities"] == ()
    values = reader.prompt(forged, images=[RED])
    assert values["prompt.tokens"].count(package.slot) == 4
    assert values["images.positions"][0].tolist() == [3, 4, 5, 6]
    joined = ",".join(map(str, values["prompt.tokens"]))
    assert joined.count(",".join(map(str, plain))) == 2


def test_the_halves_of_a_placeholder_do_not_make_one(vlm: Any) -> None:
    package, reader = vlm(chat_template=PARTS_TEMPLATE.replace("{{ part.text }}", "{{ part.text }}age>"))
    content = [{"type": "text", "text": "<im"}]
    values = reader.prompt(messages=[{"role": "user", "content": content}])
    assert "<image>" in values["prompt.text"]
    assert package.slot not in values["prompt.tokens"]


def test_a_raw_prompt_writes_its_placeholders_itself(vlm: Any) -> None:
    package, reader = vlm()
    values = reader.prompt("a<image>b<image><|im_end|>", raw=True, images=[RED, SECOND])
    ids = [package.vocabulary.id(word) for word in ("a", *["<image>"] * 4, "b", *["<image>"] * 4, "<|im_end|>")]
    assert values["prompt.tokens"] == tuple(ids)
    assert [slots.tolist() for slots in values["images.positions"]] == [[1, 2, 3, 4], [6, 7, 8, 9]]
    for text, given_images in (("<image>", []), ("no place", [RED]), ("<image>", [RED, RED])):
        with pytest.raises(RequestError, match=r"the prompt has \d '<image>' for \d images") as caught:
            reader.prompt(text, raw=True, images=given_images)
        assert caught.value.param == "images"


def test_tokens_hold_every_slot(vlm: Any) -> None:
    _, reader = vlm()
    made = reader.prompt("What?", images=[RED, SECOND])
    again = reader.prompt(tokens=made["prompt.tokens"], images=[RED, SECOND])
    assert again["prompt.identities"] == made["prompt.identities"]
    for given_images in ([], [RED]):
        with pytest.raises(RequestError, match="the prompt has 8 slots for images") as caught:
            reader.prompt(tokens=made["prompt.tokens"], images=given_images)
        assert caught.value.param == "images"


@pytest.mark.parametrize(
    ("content", "beside", "says"),
    [
        ([IMAGE, IMAGE], [RED], "have 2 parts that stand for images, and 1 are given"),
        ([IMAGE], None, "have 1 parts that stand for images, and 0 are given"),
        ([{**IMAGE, "image": RED}], [RED], "have 0 parts that stand for images, and 1 are given"),
        ([{**IMAGE, "image": RED}] * 5, None, "images takes at most 4 items, not 5"),
        ([{"type": "text", "text": "x"}], [RED], "have 0 parts that stand for images, and 1 are given"),
        ([{"type": "audio"}], None, "this package takes no audio in messages"),
    ],
)
def test_unequal_numbers_are_refused_before_anything_runs(vlm: Any, content: Any, beside: Any, says: str) -> None:
    _, reader = vlm()
    with pytest.raises(RequestError, match=says):
        reader.prompt(messages=[{"role": "user", "content": content}], images=beside)


def test_too_many_images_are_refused(vlm: Any) -> None:
    _, reader = vlm()
    with pytest.raises(RequestError, match="images takes at most 4 items, not 5") as caught:
        reader.prompt("x", images=[RED] * 5)
    assert caught.value.param == "images"


def test_a_bad_image_is_named_by_its_place(vlm: Any) -> None:
    _, reader = vlm()
    with pytest.raises(RequestError) as caught:
        reader.prompt("x", images=[RED, b"no image"])
    assert caught.value.param == "images[1]"
    part = {**IMAGE, "image": b"no image"}
    with pytest.raises(RequestError) as caught:
        reader.prompt(messages=[{"role": "user", "content": [part]}])
    assert caught.value.param == "messages[0].content[0]"


def test_a_cut_that_would_lose_slots_is_refused(vlm: Any) -> None:
    package, reader = vlm(edit=lambda metadata: metadata["tokenizer"].update(truncate=7))
    assert reader.prompt("", images=[RED])["prompt.tokens"] == turn(package, 4)[:7]
    with pytest.raises(RequestError, match="is cut to 7 tokens, and images or sounds stand after that"):
        reader.prompt("", images=[RED, RED])


def test_parameters_are_part_of_what_a_slot_holds(vlm: Any) -> None:
    parameters = {"zoom": {"type": "integer", "default": 1}}
    _, reader = vlm(edit=lambda metadata: metadata["inputs"].update(parameters=parameters))
    first, second = (reader.prompt("x", images=[RED], parameters={"zoom": n})["prompt.identities"] for n in (1, 2))
    assert [one[:2] for one in first] == [one[:2] for one in second]
    assert first[0][2] != second[0][2]


def test_a_text_model_takes_no_images(tmp_path: Path) -> None:
    from genai_pipeline.testing import write_package

    spec, _ = load_package(write_package(tmp_path, "script"))
    assert spec is not None
    reader = PromptReader(spec, {"default": Tokenizer.load(spec.root, spec.tokenizers["default"])})
    for option, modality in (("images", "image"), ("audio", "audio")):
        with pytest.raises(RequestError, match=f"this package takes no {modality}") as caught:
            reader.prompt("x", **{option: [RED]})
        assert caught.value.param == option
    content = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    with pytest.raises(RequestError, match="this package takes no image in messages") as caught:
        reader.prompt(messages=[{"role": "user", "content": content}])
    assert caught.value.param == "messages[0].content[1]"
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert reader.prompt(messages=[{"role": "user", "content": parts}]) == reader.prompt("a\nb")


def test_two_inputs_have_places_of_their_own(byte_tokenizer: Tokenizer) -> None:
    sounds = replace(images("<|tool|>", count=2, name="audio"), modality="audio")
    places = Placeholders([images(count=3), sounds], byte_tokenizer)
    items = {"images": [item(a=1)], "audio": [item(b=1), item(b=2)]}
    marks = [Piece(text, control=True) for text in ("<|tool|>", "<image>", "<|tool|>")]
    found = places.expand(marks, items, {}, "the prompt")
    ids = spread(byte_tokenizer.encode_pieces(once(found)), runs_of(found))
    placed = places.placed(ids, run_sizes(found, items), items, b"")
    assert [slots.tolist() for slots in placed.positions["audio"]] == [[0, 1], [5, 6]]
    assert [slots.tolist() for slots in placed.positions["images"]] == [[2, 3, 4]]
    assert [(start, stop) for start, stop, _ in placed.identities] == [(0, 2), (2, 5), (5, 7)]


TEMPLATES = {
    "by type": "{% for m in messages %}{% for p in m.content %}{% if p['type'] == 'image' %}<image>{% else %}"
    "{{ p['text'] }}{% endif %}{% endfor %}{% endfor %}",
    "by key": "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for p in m['content'] %}{% if 'image' in p or 'image_url' in p %}{{ '[' }}<image>{{ ']' }}"
    "{% elif 'text' in p %}{{ p.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}",
    "images first": "{% for m in messages %}{% for p in m.content | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}{% for p in m.content | selectattr('type', 'equalto', 'text') %}{{ p.text }}"
    "{% endfor %}{% endfor %}",
    "trimmed texts": "{% for m in messages %}{{ m.role + ': ' + m.content | trim }}{{ '\n' }}{% endfor %}",
    "numbered": "{% set n = namespace(images=0) %}{% for m in messages %}{% for p in m.content %}"
    "{% if p.type == 'image' %}{% set n.images = n.images + 1 %}{{ n.images }}:<image>{% else %}{{ p.text }}"
    "{% endif %}{% endfor %}{% endfor %}",
}  # as chat templates of today's models walk the parts of a message


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_every_kind_write_the_placeholders(vlm: Any, name: str) -> None:
    package, reader = vlm(chat_template=TEMPLATES[name])
    content = [{"type": "text", "text": "<image>a"}, {**IMAGE, "image": RED}, {"type": "text", "text": "b"}, IMAGE]
    values = reader.prompt(messages=[{"role": "user", "content": content}], images=[BLUE])
    slots = np.concatenate(values["images.positions"])
    assert slots.tolist() == [i for i, token in enumerate(values["prompt.tokens"]) if token == package.slot]
    assert len(slots) == 8
    assert [one["digest"] for one in values["images"]] == values["images.digest"]
    assert values["images.pixels"][0][0].all()
    text = values["prompt.text"]
    assert text.count("<image>") == 9, "the one that was typed is text"
    assert reader.prompt(tokens=values["prompt.tokens"], images=[RED, BLUE])["prompt.text"] == text


@pytest.mark.parametrize("template", [PARTS_TEMPLATE, CHATML])
def test_contents_of_parts_alone_and_empty_ones(vlm: Any, template: str) -> None:
    package, reader = vlm(chat_template=template)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    between = "" if template is PARTS_TEMPLATE else "\n"
    values = reader.prompt(messages=[{"role": "user", "content": parts}])
    assert values["prompt.tokens"] == turn(package, f"a{between}b")
    with pytest.raises(RequestError, match=r"messages\[0\].content is an empty list"):
        reader.prompt(messages=[{"role": "user", "content": []}])
