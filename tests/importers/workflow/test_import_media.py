"""Documents with pictures, sounds and vectors: packages that give what plain arithmetic over the same graphs gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_pipeline as gp
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers.workflow import import_workflow
from genai_pipeline.metadata.load import METADATA_FILE
from genai_pipeline.testing.builder import GraphBuilder, Value
from genai_pipeline.testing.graphs import senses
from genai_pipeline.testing.graphs.decoder import EMBED_SIZE
from genai_pipeline.testing.graphs.mixing import patch_eye_graph
from genai_pipeline.testing.media import MediaPackage, write_vlm
from genai_pipeline.testing.packages import metadata_text, write_graph
from genai_pipeline.testing.signals import COLOURS, quarters
from genai_pipeline.testing.vocabulary import Vocabulary, words

SYMBOLS = ("<pad>", "|", "a", "b", "c", "<unk>")
RATE = 8000
FRAME = 100  # samples
Document = dict[str, Any]


def write(folder: Path, document: Document) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / METADATA_FILE).write_text(metadata_text(document), encoding="utf-8")
    return folder


def imported(folder: Path, document: Document) -> Path:
    """The package of a folder with this document."""
    target = folder.parent / "made"
    import_workflow(write(folder, document), target)
    assert gp.validate(target)[1] == ()
    return target


def refusal(folder: Path, document: Document) -> str:
    with pytest.raises(ImportRefusedError) as caught:
        import_workflow(write(folder, document), folder.parent / "made")
    assert not (folder.parent / "made").exists()
    return str(caught.value)


def invoke(component: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Document:
    return {"kind": "invoke", "component": component, "inputs": dict(inputs), "outputs": dict(outputs)}


def emit(value: str, output: str) -> Document:
    return {"kind": "emit", "value": value, "output": output, "mode": "replace"}


def onnx(file: str) -> Document:
    return {"implementation": {"kind": "onnx", "artifact": file}}


def adapter(modality: str) -> Document:
    return {"implementation": {"kind": "adapter", "abi": f"onnx-genai.{modality}-preprocess", "version": "1"}}


# ---- vectors of texts


def encoder_document(**pooling: Any) -> Document:
    """An encoder that runs once, and the profile that says how its rows are pooled."""
    ports = ("input_ids", "attention_mask")
    profile = {"kind": "embedding", "outputs": {"last_hidden_state": "states"}, "batch_invariance": "row_independent"}
    said = {"source": "last_hidden_state", "mask": "request.attention_mask", "time_axis": 1, "feature_axis": 2}
    return {
        "schema_version": "v1",
        "profiles": {"embedding": {**profile, **({"pooling": {**said, **pooling}} if pooling else {})}},
        "pipeline": {
            "workflow": {
                "outputs": {"states": {"role": "hidden_states"}},
                "components": {"encoder": onnx("model.onnx")},
                "steps": [
                    invoke("encoder", {port: f"request.{port}" for port in ports}, {"last_hidden_state": "encoded"}),
                    emit("encoded", "states"),
                ],
            }
        },
    }


@pytest.fixture
def vocabulary() -> Vocabulary:
    """Words of the colours, and letters."""
    return words(*COLOURS)


def table(size: int) -> NDArray[np.float32]:
    """A row of 4 numbers for each token."""
    return np.random.default_rng(1).normal(size=(size, 4)).astype(np.float32)


@pytest.fixture
def encoder(tmp_path: Path, vocabulary: Vocabulary) -> Path:
    """A graph that gives the row of the table for each token."""
    folder = tmp_path / "source"
    folder.mkdir()
    graph = GraphBuilder("encoder")
    ids, mask = (graph.input(name, "int64", ["batch", "sequence"]) for name in ("input_ids", "attention_mask"))
    rows = graph.op(
        "Mul", graph.op("Gather", table(len(vocabulary)), ids), graph.cast(graph.op("Unsqueeze", mask, [-1]), "float32")
    )
    graph.output("last_hidden_state", rows, "float32", ["batch", "sequence", 4])
    write_graph(folder / "model.onnx", graph)
    vocabulary.write(folder / "tokenizer.json")
    return folder


@pytest.mark.parametrize("kind", ["mean", "first", "last"])
def test_vectors_are_those_of_the_graph_pooled(encoder: Path, vocabulary: Vocabulary, kind: str) -> None:
    texts = ["red green", "blue white white"]
    with gp.load(imported(encoder, encoder_document(kind=kind))) as pipe:
        found = pipe.embed(texts)
    wanted = [table(len(vocabulary))[vocabulary.encode(text)] for text in texts]
    pooled = [{"mean": rows.mean(0), "first": rows[0], "last": rows[-1]}[kind] for rows in wanted]
    np.testing.assert_allclose(found, pooled, rtol=1e-5, atol=1e-6)


def test_vectors_that_nobody_says_how_to_pool_are_refused(encoder: Path) -> None:
    assert "how do rows become one vector" in refusal(encoder, encoder_document())
    assert "pools by 'weighted', which has no counterpart" in refusal(encoder, encoder_document(kind="weighted"))


# ---- speech


def recogniser(folder: Path) -> Path:
    """Every frame of 100 samples has the symbol of its loudness: 0 to 5 tenths."""
    folder.mkdir(exist_ok=True)
    graph = GraphBuilder("recogniser")
    samples = graph.input("input_values", "float32", ["batch", "time"])
    mask = graph.input("attention_mask", "int64", ["batch", "time"])
    heard = graph.op("Mul", samples, graph.cast(mask, "float32"))
    frames = graph.op("Reshape", heard, [0, -1, FRAME])
    loud = graph.op("ReduceMean", graph.op("Abs", frames), [-1], keepdims=1)
    levels = np.arange(len(SYMBOLS), dtype=np.float32)[np.newaxis] / 10
    away = graph.op("Sub", loud, levels)
    graph.output("logits", graph.op("Neg", graph.op("Mul", away, away)), "float32", ["batch", "frames", len(SYMBOLS)])
    write_graph(folder / "model.onnx", graph)
    return folder


def speech(symbols: str) -> tuple[NDArray[np.float32], int]:
    """A sound with a frame for each symbol, as its number."""
    return np.repeat(np.array([int(symbol) / 10 for symbol in symbols], np.float32), FRAME), RATE


def speech_document(**decoding: Any) -> Document:
    """A recogniser with a program for its sound and a profile for its frames."""
    ports = {"input_values": "audio.samples", "attention_mask": "audio.mask"}
    vocabulary = {"tokens": list(SYMBOLS), "word_delimiter": "|", "ignored_tokens": ["<unk>"]}
    ctc = {"kind": "ctc", "blank_id": 0, "collapse_repeats": True, "time_axis": 1, "class_axis": 2}
    outputs = [
        {"name": "audio.samples", "source": "mono", "content": "waveform", "dtype": "float32"},
        {"name": "audio.mask", "source": "mask", "content": "validity_mask", "dtype": "int64"},
    ]
    transforms = [
        {"op": "decode"}, {"op": "resample", "sample_rate": RATE}, {"op": "downmix", "channels": 1},
        {"op": "pad", "mode": "right", "pad_value": 0.0}, {"op": "emit_validity_mask"},
    ]  # fmt: skip
    return {
        "schema_version": "v1",
        "preprocessing": {"audio": {"transforms": transforms, "outputs": outputs}},
        "profiles": {
            "transcription": {
                "kind": "transcription",
                "outputs": {"logits": "logits"},
                "decoding": {**ctc, "vocabulary": vocabulary, **decoding},
            }
        },
        "pipeline": {
            "workflow": {
                "outputs": {"logits": {"role": "logits"}},
                "components": {"prepare": adapter("audio"), "encoder": onnx("model.onnx")},
                "steps": [
                    invoke("prepare", {"encoded": "request.audio"}, {value: value for value in ports.values()}),
                    invoke("encoder", ports, {"logits": "scores"}),
                    emit("scores", "logits"),
                ],
            }
        },
    }


def greedy(symbols: str) -> str:
    """The text of frames: equal neighbours once, blanks left out."""
    path = [symbol for index, symbol in enumerate(symbols) if index == 0 or symbols[index - 1] != symbol]
    texts = ["" if symbol in "05" else SYMBOLS[int(symbol)].replace("|", " ") for symbol in path]
    return "".join(texts).strip()


@pytest.mark.parametrize("symbols", ["2233", "220221334", "1024215", "0000"])
def test_speech_is_the_best_path_of_its_frames(tmp_path: Path, symbols: str) -> None:
    with gp.load(imported(recogniser(tmp_path / "source"), speech_document())) as pipe:
        assert pipe.run({"sound": speech(symbols)})["text"] == greedy(symbols)


def test_speech_of_a_document_without_programs_is_read_as_the_files_beside_it_say(tmp_path: Path) -> None:
    folder = recogniser(tmp_path / "source")
    extractor = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": RATE, "do_normalize": False}
    (folder / "preprocessor_config.json").write_text(json.dumps(extractor))
    (folder / "vocab.json").write_text(json.dumps({text: index for index, text in enumerate(SYMBOLS)}))
    special = {"pad_token": "<pad>", "word_delimiter_token": "|", "bos_token": {"content": "<unk>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    io = {"inputs": [{"name": "input_values"}], "logits_output": "logits"}
    with gp.load(imported(folder, {"model": {"attention": {"type": "multi_head"}, "io": io}})) as pipe:
        assert pipe.run({"sound": speech("220221334")})["text"] == greedy("220221334")


def test_what_reads_speech_in_another_way_is_refused_by_name(tmp_path: Path) -> None:
    document = speech_document(kind="transducer")
    document["preprocessing"]["audio"]["transforms"].append({"op": "log_mel", "n_fft": 400})
    message = refusal(recogniser(tmp_path / "source"), document)
    assert "the transform 'log_mel' has no counterpart" in message
    assert "reads frames by 'transducer', which has no counterpart" in message


# ---- pictures


def eye(colours: list[int], *, matrix: bool = False) -> GraphBuilder:
    """``pixel_values`` [batch, 3, 4, 4] -> ``image_features`` [batch, 4, 4]: the words of the quarters' colours.

    ``matrix``: the rows of all pictures one below the other, [rows, 4].
    """
    graph = GraphBuilder("eye")
    pixels = graph.input("pixel_values", "float32", ["batch", 3, senses.SIDE, senses.SIDE])
    half = senses.SIDE // 2
    means = graph.op("AveragePool", pixels, kernel_shape=[half, half], strides=[half, half])
    quarter = graph.op("Transpose", graph.op("Reshape", means, [0, 3, 4]), perm=[0, 2, 1])
    bits = graph.cast(graph.op("Greater", quarter, 0.5), "int64")
    code = graph.op("ReduceSum", graph.op("Mul", bits, np.array([1, 2, 4], np.int64)), [-1], keepdims=0)
    rows = graph.op("Gather", senses.embedding_rows(colours), code)
    if matrix:
        graph.output("image_features", graph.op("Reshape", rows, [-1, EMBED_SIZE]), "float32", ["rows", EMBED_SIZE])
    else:
        graph.output("image_features", rows, "float32", ["batch", 4, EMBED_SIZE])
    return graph


def mixer(size: int, token: int, *, scaled: bool = False) -> GraphBuilder:
    """Embeddings of tokens, with the next row of ``image_features`` at each ``token``, counted from the start."""
    graph = GraphBuilder("mixer")
    ids = graph.input("input_ids", "int64", ["batch", "sequence"])
    rows: Value = graph.input("image_features", "float32", ["rows", EMBED_SIZE])
    slots = graph.op("Equal", ids, graph.const(token))
    number = graph.op("Sub", graph.op("CumSum", graph.cast(slots, "int64"), graph.const(1)), graph.const(1))
    padded = graph.op("Concat", rows, np.zeros((1, EMBED_SIZE), np.float32), axis=0)
    placed = graph.op("Gather", padded, graph.op("Max", number, graph.const(0)))
    if scaled:
        placed = graph.op("Mul", placed, 2.0)
    text = graph.op("Gather", senses.embedding_rows(range(size)), ids)
    mixed = graph.op("Where", graph.op("Unsqueeze", slots, [-1]), placed, text)
    graph.output("inputs_embeds", mixed, "float32", ["batch", "sequence", EMBED_SIZE])
    return graph


@pytest.fixture
def vlm(tmp_path: Path) -> MediaPackage:
    """The vision package of the tests, its graphs as exporters split them."""
    package = write_vlm(tmp_path / "source", update="append")
    folder = package.path
    write_graph(folder / "vision.onnx", eye(package.vocabulary.id_list(COLOURS)))
    write_graph(folder / "embed.onnx", mixer(len(package.vocabulary), package.slot))
    return package


def program() -> Document:
    side = senses.SIDE
    return {
        "image": {
            "transforms": [
                {"op": "decode"}, {"op": "convert_rgb"},
                {"op": "resize", "size": side, "mode": "stretch", "interpolation": "box"},
                {"op": "rescale", "scale": 1 / 255},
            ],
            "outputs": [{"name": "vision.pixel_values", "content": "pixels", "dtype": "float32"}],
        }
    }  # fmt: skip


def vlm_older(package: MediaPackage) -> Document:
    """The older form: models, edges between them, strategies."""
    once = [{"name": name, "strategy": {"kind": "single_pass", "model": name}} for name in ("vision", "embed")]
    steps = {"name": "decode", "strategy": {"kind": "autoregressive", "decoder": "decoder"}}
    positions = {"generation": "linear", "rank": 1, "continuation": "linear_increment"}
    return {
        "schema_version": "v1",
        "model": {"attention": {"type": "multi_head"}, "max_sequence_length": 200},
        "preprocessing": program(),
        "generation_config": None,
        "pipeline": {
            "models": {name: {"filename": f"{name}.onnx"} for name in ("vision", "embed", "decoder")},
            "dataflow": [
                {"from": "vision.image_features", "to": "embed.image_features"},
                {"from": "embed.inputs_embeds", "to": "decoder.inputs_embeds"},
            ],
            "strategy": {"kind": "composite", "stages": [*once, steps]},
            "vision": {"image_token_id": package.slot, "token_count_source": "per_image"},
            "positions": positions,
        },
    }


def ready(package: MediaPackage, document: Document) -> tuple[Path, Document]:
    """The folder with the end tokens that its generation config says."""
    ends = package.vocabulary.id_list(["</s>", "<|im_end|>"])
    (package.path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    document.pop("generation_config", None)
    return package.path, document


def test_pictures_are_seen_in_pieces_and_beside_each_other(vlm: MediaPackage) -> None:
    made = imported(*ready(vlm, vlm_older(vlm)))
    one, two = ("red", "green", "blue", "white"), ("blue", "blue", "red", "white")
    with gp.load(made, prefill_chunk=3) as pipe:
        options: dict[str, Any] = {"temperature": 0}
        assert pipe.generate("what?", images=[quarters(*one)], **options).text == "".join(one)
        assert pipe.generate("what?", images=[quarters(*one), quarters(*two)], **options).text == "".join((*one, *two))
        assert pipe.generate("what?", **options).text == ""


def sees_one_and_two(folder: Path) -> None:
    """One picture, and two at once, each told by its quarters."""
    one, two = ("red", "green", "blue", "white"), ("blue", "blue", "red", "white")
    with gp.load(folder, prefill_chunk=3) as pipe:
        found = pipe.generate("what?", images=[quarters(*one), quarters(*two)], temperature=0).text
        assert found == "".join((*one, *two))
        streams = [pipe.stream("what?", images=[quarters(*colours)], temperature=0) for colours in (one, two, one)]
        texts = ["".join(event.text for event in stream) for stream in streams]
    assert texts == ["".join(one), "".join(two), "".join(one)]


def test_an_eye_that_gives_one_matrix_sees_one_picture_in_each_run(vlm: MediaPackage) -> None:
    write_graph(vlm.path / "vision.onnx", eye(vlm.vocabulary.id_list(COLOURS), matrix=True))
    (vlm.path / "config.json").write_text(json.dumps({"image_seq_length": 4}))
    made = imported(*ready(vlm, vlm_older(vlm)))
    sees_one_and_two(made)
    assert "batch: none" in (made / METADATA_FILE).read_text()


def patched(package: MediaPackage, **patchify: Any) -> Document:
    """An eye of patches, two by two to a row, and a program that makes them."""
    write_graph(package.path / "vision.onnx", patch_eye_graph(package.vocabulary.id_list(COLOURS), 2, 24))
    document = vlm_older(package)
    transforms = document["preprocessing"]["image"]["transforms"]
    transforms[2]["size"] = 8
    transforms += [{"op": "normalize", "mean": [0.5] * 3, "std": [0.5] * 3}, {"op": "patchify", **patchify}]
    return document


def test_an_eye_of_patches_takes_their_grid_too(vlm: MediaPackage) -> None:
    made = imported(*ready(vlm, patched(vlm, patch_size=2, merge_size=2, temporal_patch_size=2)))
    sees_one_and_two(made)
    text = (made / METADATA_FILE).read_text()
    assert "image_grid_thw: images.grid" in text
    assert "count: images.tokens" in text


def test_an_eye_that_takes_what_its_program_does_not_make_is_refused(vlm: MediaPackage) -> None:
    document = patched(vlm, patch_size=2, merge_size=2)
    del document["preprocessing"]["image"]["transforms"][-1]
    message = refusal(*ready(vlm, document))
    assert "pixel_values: takes patches, and the program makes pixels" in message
    assert "image_grid_thw: an input that no picture gives" in message


def test_a_program_of_the_processor_beside_the_document_is_taken(vlm: MediaPackage) -> None:
    document = vlm_older(vlm)
    del document["preprocessing"]
    config = {"image_processor_type": "SiglipImageProcessor", "size": {"height": 4, "width": 4}, "resample": 4}
    config |= {"do_normalize": False, "do_rescale": True, "rescale_factor": 1 / 255}
    (vlm.path / "preprocessor_config.json").write_text(json.dumps(config))
    with gp.load(imported(*ready(vlm, document))) as pipe:
        assert pipe.generate("what?", images=[quarters("red", "blue", "red", "white")], temperature=0).text == (
            "redblueredwhite"
        )


def test_what_sees_in_another_way_is_refused_by_name(vlm: MediaPackage) -> None:
    document = vlm_older(vlm)
    document["preprocessing"]["image"]["transforms"].append({"op": "tile", "mode": "dynamic_hd"})
    document["pipeline"]["positions"] = {"generation": "processor_coordinates", "rank": 3}
    del document["pipeline"]["vision"]["image_token_id"]
    write_graph(vlm.path / "embed.onnx", mixer(len(vlm.vocabulary), vlm.slot, scaled=True))
    message = refusal(*ready(vlm, document))
    assert "the transform 'tile' has no counterpart" in message
    assert "are made by 'processor_coordinates' on 3 axes" in message
    assert "which token stands for a picture is not said" in message
    assert "changes the rows that it mixes in (Mul)" in message
