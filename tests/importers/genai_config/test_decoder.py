"""Text models for onnxruntime-genai as packages: the same tokens as the closed form and as that runtime."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import genai_pipeline as gp
from genai_pipeline.errors import ImportModelError, ImportRefusedError
from genai_pipeline.importers.genai_config import import_genai_config
from genai_pipeline.metadata.load import load_package

Folders = Callable[..., Any]
COUNT = 12


def imported(folder: Any, target: Path) -> Path:
    """The package, which has no problem at all."""
    import_genai_config(folder.path, target)
    _, problems = gp.validate(target)
    assert problems == ()
    return target


def rename(path: Path, names: dict[str, str]) -> None:
    """Gives ports of a graph other names."""
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        for ports in (node.input, node.output):
            ports[:] = [names.get(name, name) for name in ports]
    onnx.save(model, path)


@pytest.mark.parametrize("update", ["in_place", "append"])
def test_tokens_are_those_of_the_closed_form_and_of_onnxruntime_genai(
    genai_folder: Folders, tmp_path: Path, update: str
) -> None:
    def only_known_ports(config: dict[str, Any]) -> None:
        if update == "in_place":
            del config["model"]["decoder"]["inputs"]["position_ids"]
        config["search"]["past_present_share_buffer"] = update == "in_place"

    folder = genai_folder(update=update, edit=only_known_ports)
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    made = imported(folder, tmp_path / "made")
    with gp.load(made) as pipe:
        tokens = list(pipe.generate(tokens=prompt, max_new_tokens=COUNT).tokens)
    assert tokens == folder.package.answer(prompt, COUNT) == folder.greedy(prompt, COUNT)[: len(tokens)]
    spec, _ = load_package(made)
    assert spec is not None
    assert [kv.update for kv in spec.components["decoder"].kv] == [update]


@pytest.mark.parametrize("share", [True, False])
def test_how_the_cache_is_written_follows_from_the_graph(genai_folder: Folders, tmp_path: Path, share: bool) -> None:
    folder = genai_folder(update="append", edit=lambda config: config["search"].update(past_present_share_buffer=share))
    assert "update: append" in (imported(folder, tmp_path / "made") / "inference_metadata.yaml").read_text()


def test_ports_may_have_any_names(genai_folder: Folders, tmp_path: Path) -> None:
    ports = {"input_ids": "tokens", "attention_mask": "seen", "logits": "scores"}
    for layer in range(2):
        for part, short in (("key", "k"), ("value", "v")):
            ports[f"past_key_values.{layer}.{part}"] = f"past.{short}_{layer}"
            ports[f"present.{layer}.{part}"] = f"now.{short}_{layer}"

    def edit(config: dict[str, Any]) -> None:
        decoder = config["model"]["decoder"]
        decoder["inputs"] = {"input_ids": "tokens", "attention_mask": "seen"}
        decoder["inputs"] |= {"past_key_names": "past.k_%d", "past_value_names": "past.v_%d"}
        decoder["outputs"] = {"logits": "scores", "present_key_names": "now.k_%d", "present_value_names": "now.v_%d"}

    folder = genai_folder(edit=edit)
    rename(folder.path / "model.onnx", ports)
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        tokens = list(pipe.generate(tokens=prompt, max_new_tokens=COUNT).tokens)
    assert tokens == folder.package.answer(prompt, COUNT) == folder.greedy(prompt, COUNT)[: len(tokens)]


def test_names_left_out_are_those_of_the_format(genai_folder: Folders, tmp_path: Path) -> None:
    def edit(config: dict[str, Any]) -> None:
        del config["model"]["decoder"]["inputs"], config["model"]["decoder"]["outputs"]

    folder = genai_folder(edit=edit)
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=4).tokens) == folder.package.answer(prompt, 4)


def test_an_embedding_graph_stands_in_front(genai_folder: Folders, tmp_path: Path) -> None:
    def edit(config: dict[str, Any]) -> None:
        config["model"]["embedding"] = {"filename": "embed.onnx", "outputs": {"inputs_embeds": "inputs_embeds"}}
        config["model"]["decoder"]["inputs"]["inputs_embeds"] = "inputs_embeds"

    folder = genai_folder("embeds", edit=edit)
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=4).tokens) == folder.package.answer(prompt, 4)


def test_recurrent_state_is_replaced(genai_folder: Folders, tmp_path: Path) -> None:
    def edit(config: dict[str, Any]) -> None:
        config["model"]["decoder"]["inputs"] = {"input_ids": "input_ids", "past_conv_names": "past_state.%d"}
        config["model"]["decoder"]["outputs"] = {"logits": "logits", "present_conv_names": "present_state.%d"}

    folder = genai_folder("recurrent", edit=edit, padded=False)
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=4).tokens) == folder.package.answer(prompt, 4)


def test_weights_are_linked_not_copied(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder(external_data=True)
    made = imported(folder, tmp_path / "made")
    for name in ("model.onnx", "model.onnx.data", "tokenizer.json"):
        assert (made / name).samefile(folder.path / name)


def test_a_hub_cache_of_links_is_read(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder(external_data=True)
    cache = tmp_path / "models--x--y"
    snapshot = cache / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    for index, file in enumerate(sorted(folder.path.iterdir())):
        file.rename(cache / "blobs" / str(index))
        (snapshot / file.name).symlink_to(f"../../blobs/{index}")
    made = tmp_path / "made"
    import_genai_config(snapshot, made)
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(made) as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=4).tokens) == folder.package.answer(prompt, 4)


def test_a_link_that_leads_out_is_refused(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder()
    (folder.path / "model.onnx").rename(tmp_path / "elsewhere.onnx")
    (folder.path / "model.onnx").symlink_to(tmp_path / "elsewhere.onnx")
    with pytest.raises(ImportModelError, match="lies outside"):
        import_genai_config(folder.path, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_an_input_that_nothing_feeds_is_refused_by_name(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder()
    rename(folder.path / "model.onnx", {"attention_mask": "cache_indirection"})
    with pytest.raises(ImportRefusedError, match="the graph has the input 'cache_indirection'"):
        import_genai_config(folder.path, tmp_path / "made")


def test_a_name_that_the_graph_lacks_is_refused_at_its_key(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder(edit=lambda config: config["model"]["decoder"]["inputs"].update(input_ids="inputs"))
    said = "model.decoder.inputs.input_ids is 'inputs', which is no input of the graph; 'input_ids' is"
    with pytest.raises(ImportRefusedError, match=r"decoder\.inputs\.input_ids: nothing feeds") as caught:
        import_genai_config(folder.path, tmp_path / "made")
    assert "nothing is known" not in caught.value.message
    assert said in caught.value.hint


def test_a_graph_without_a_mask_is_fed_none(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder("table")
    report = import_genai_config(folder.path, tmp_path / "made")
    dropped = {row.key for row in report.rows if row.outcome == "dropped"}
    assert {"model.decoder.inputs.attention_mask", "model.decoder.inputs.past_key_names"} <= dropped
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(tmp_path / "made") as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=4).tokens) == folder.package.answer(prompt, 4)


def test_every_key_of_the_config_is_in_the_report(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder(edit=lambda config: config.update(engine={"dynamic_batching": {"max_batch_size": 4}}))
    report = import_genai_config(folder.path, tmp_path / "made")
    assert report.uncovered(_config(folder.path)) == ()
    kept = json.loads((tmp_path / "made" / "import_report.json").read_text())
    assert len(kept["rows"]) == len(report.rows)


def _config(folder: Path) -> Any:
    from genai_pipeline.importers.source_folder import SourceFolder

    return SourceFolder(folder).json("genai_config.json")


@pytest.mark.parametrize(("layers", "fits"), [(None, True), ([0, 1], True), ([0], False)])
def test_a_sliding_window_is_that_of_the_graphs_attention(
    genai_folder: Folders, tmp_path: Path, layers: list[int] | None, fits: bool
) -> None:
    def edit(config: dict[str, Any]) -> None:
        window = {"window_size": 6, "slide_key_value_cache": not fits, "slide_inputs": False}
        config["model"]["decoder"]["sliding_window"] = window | ({} if layers is None else {"layers": layers})

    folder = genai_folder(edit=edit)
    model = onnx.load(folder.path / "model.onnx")
    attention = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    for node in attention if fits else attention[1:]:
        node.attribute.append(onnx.helper.make_attribute("local_window_size", 6))
    onnx.save(model, folder.path / "model.onnx")
    if not fits:
        with pytest.raises(ImportRefusedError, match="forgets all but 6 tokens"):
            import_genai_config(folder.path, tmp_path / "made")
        return
    made = imported(folder, tmp_path / "made")
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello there"))
    with gp.load(made) as pipe:
        tokens = list(pipe.generate(tokens=prompt, max_new_tokens=COUNT).tokens)
    folder.reconfigure(lambda config: config["model"]["decoder"].pop("sliding_window"))  # there: a size of buffers
    assert tokens == folder.greedy(prompt, COUNT)[: len(tokens)]


@pytest.mark.parametrize(
    "types",
    [{"dtype": "float16"}, {"value_dtype": "float16"}, {"logits": "float16"}],
    ids=["cache", "values", "logits"],
)
def test_types_are_those_of_the_graph(genai_folder: Folders, tmp_path: Path, types: dict[str, str]) -> None:
    folder = genai_folder(update="append", **types)
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=4).tokens) == folder.package.answer(prompt, 4)


def test_lengths_are_known_by_the_operator_that_reads_them(genai_folder: Folders, tmp_path: Path) -> None:
    def edit(config: dict[str, Any]) -> None:
        config["model"]["decoder"]["inputs"] = {
            "input_ids": "input_ids",
            "past_sequence_length": "seqlens_k",
            "total_sequence_length": "total_sequence_length",
        }

    folder = genai_folder(update="in_place", positions="input", edit=edit)
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        tokens = list(pipe.generate(tokens=prompt, max_new_tokens=COUNT).tokens)
    assert tokens == folder.package.answer(prompt, COUNT)


def test_files_that_are_left_out_are_named(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder(external_data=True)
    (folder.path / "generation_config.json").write_text('{"eos_token_id": 9}')
    report = import_genai_config(folder.path, tmp_path / "made")
    left = [row.file for row in report.rows if row.detail == "nothing in the package needs it"]
    assert left == ["generation_config.json"]
    assert not (tmp_path / "made" / "generation_config.json").exists()  # its end tokens would count


def test_weights_of_a_gigabyte_take_no_memory(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder()
    size = 2**30
    with (folder.path / "large.data").open("wb") as file:
        file.truncate(size)  # a hole: it takes no room on the disk
    model = onnx.load(folder.path / "model.onnx")
    tensor = model.graph.initializer.add(name="large", data_type=onnx.TensorProto.FLOAT, dims=[size // 4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="large.data")
    onnx.save(model, folder.path / "model.onnx")
    tracemalloc.start()
    import_genai_config(folder.path, tmp_path / "made")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**26
    assert (tmp_path / "made" / "large.data").stat().st_size == size


def test_penalties_give_the_tokens_of_onnxruntime_genai(genai_folder: Folders, tmp_path: Path) -> None:
    def edit(config: dict[str, Any]) -> None:
        config["search"] |= {"repetition_penalty": 4.0, "past_present_share_buffer": False}

    folder = genai_folder(update="append", edit=edit)
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        tokens = list(pipe.generate(tokens=prompt, max_new_tokens=COUNT).tokens)
    theirs = folder.greedy(prompt, COUNT)
    assert tokens == theirs[: len(tokens)]
    assert tokens != folder.package.answer(prompt, COUNT)  # the penalty counts
