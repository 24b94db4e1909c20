"""Model folders whose hashes are right and whose content is not, found by research/fuzz.py, are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from served import made

from textgraft.core.errors import UserError
from textgraft.data.labels import Labels
from textgraft.models import artifact, model_folder
from textgraft.models.loading import load
from textgraft.models.sentence_embedding import sentence_embedding
from textgraft.tasks.export import export
from textgraft.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    names = {"classifier": "single", "tagger": "tagger", "qa": "reader"}
    saved = {kind: artifact.save(made(name), folder / kind) for kind, name in names.items()}
    return {**saved, "graph": export(saved["classifier"], folder / "graph").out}


def damaged(folder: Path, out: Path, **files: bytes) -> Path:
    """A copy with other files, with all hashes right."""
    config = model_folder.read_config(folder)
    content = model_folder.read_files(folder, config) | {name.replace("__", "."): data for name, data in files.items()}
    description = {key: value for key, value in config.items() if key not in ("files", "format", "sha256")}
    return model_folder.write_folder(out, {**content, "config.json": model_folder.config(description, content)})


def refused(folder: Path, *parts: str) -> None:
    with pytest.raises(UserError) as caught:
        list(load(folder).predict(["a text"]))
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("kind", ["classifier", "graph"])
@pytest.mark.parametrize("name", ["labels__json", "tokenizer__json", "run__json"])
@pytest.mark.parametrize("content", [b'{"a": "\xf1"}', b"1", b'"x"', b"[]", b"[" * 3000], ids=range(5))
def test_a_document_that_is_not_utf8_or_not_an_object(
    folders: dict[str, Path], tmp_path: Path, kind: str, name: str, content: bytes
) -> None:
    refused(damaged(folders[kind], tmp_path / "m", **{name: content}), name.replace("__", "."))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("classifier", {"max_tokens": 0}),
        ("classifier", {"max_tokens": {}}),
        ("classifier", {"reads": "x"}),
        ("classifier", {"temperature": "nan"}),
        ("tagger", {"max_tokens": "1e5"}),
        ("qa", {"windows": "nan"}),
        ("qa", {"windows": {"stride": "x"}}),
        ("qa", {"windows": {"unknown": 1}}),
        ("qa", {"search": [1]}),
    ],
)
def test_a_value_of_run_json_of_another_type(
    folders: dict[str, Path], tmp_path: Path, kind: str, values: dict[str, Any]
) -> None:
    run = json.loads((folders[kind] / "run.json").read_bytes()) | values
    refused(damaged(folders[kind], tmp_path / "m", run__json=json.dumps(run).encode()), "run.json", *values)


def test_a_run_json_without_max_tokens(folders: dict[str, Path], tmp_path: Path) -> None:
    run = {k: v for k, v in json.loads((folders["classifier"] / "run.json").read_bytes()).items() if k != "max_tokens"}
    refused(damaged(folders["classifier"], tmp_path / "m", run__json=json.dumps(run).encode()), "'max_tokens'")


def test_other_labels_than_the_model_has_outputs(folders: dict[str, Path], tmp_path: Path) -> None:
    labels = json.dumps({"kind": "single", "names": ["a"]}).encode()
    refused(damaged(folders["classifier"], tmp_path / "m", labels__json=labels), "3 outputs", "1 labels")


@pytest.mark.parametrize("cut", [0, 8, 5000])
def test_a_graph_that_is_cut(folders: dict[str, Path], tmp_path: Path, cut: int) -> None:
    graph = (folders["graph"] / "model.onnx").read_bytes()
    refused(damaged(folders["graph"], tmp_path / "m", model__onnx=graph[:cut]), "model.onnx", "damaged")


def test_nothing_is_printed_of_a_graph_whose_names_are_no_utf8(
    folders: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is on stdout may be read as JSON, and onnxruntime prints there before it tries again."""
    graph = (folders["graph"] / "model.onnx").read_bytes()
    assert b"mask" in graph
    refused(damaged(folders["graph"], tmp_path / "m", model__onnx=graph.replace(b"mask", b"m\xbfsk")), "model.onnx")
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("change", ["unknown", "template"])
def test_a_tokenizer_that_the_library_panics_at(folders: dict[str, Path], change: str) -> None:
    """It is found out when the tokenizer is read, not at the first text."""
    content = json.loads((folders["classifier"] / "tokenizer.json").read_bytes())
    if change == "unknown":
        content["model"]["unk_token"] = "nowhere"
        del content["model"]["vocab"]["[UNK]"]
        content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != "[UNK]"]
    else:
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {},
        }
    with pytest.raises(UserError, match=r"tokenizer.json: this "):
        Tokenizer.from_json(json.dumps(content))


@pytest.mark.parametrize("rate", [10**400, -1, "x", None])
def test_a_dropout_that_is_no_probability(folders: dict[str, Path], rate: Any) -> None:
    """It was found out at the first text, by the layer."""
    config = model_folder.read_config(folders["qa"])
    config["head"] = {**config["head"], "input_dropout": rate}
    with pytest.raises(UserError, match=r"config.json: .*'input_dropout' is no probability"):
        artifact.from_folder(folders["qa"], config)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_layers", 10**9),
        ("num_layers", "two"),
        ("num_heads", True),
        ("layer_norm_eps", "x"),
        ("max_length", 2.5),
    ],
)
def test_a_setting_of_the_encoder_of_another_type_or_size(folders: dict[str, Path], name: str, value: Any) -> None:
    """Found out by a layer at the first text, or never, while layers were made."""
    config = model_folder.read_config(folders["qa"])
    assert name in config["encoder"]
    config["encoder"] = {**config["encoder"], name: value}
    with pytest.raises(UserError, match=r"config.json: .*" + name):
        artifact.from_folder(folders["qa"], config)


def test_a_tokenizer_with_an_id_beyond_its_tokens(folders: dict[str, Path]) -> None:
    content = json.loads((folders["classifier"] / "tokenizer.json").read_bytes())
    last = max(content["model"]["vocab"], key=content["model"]["vocab"].__getitem__)
    content["model"]["vocab"][last] = 2**31
    with pytest.raises(UserError, match=r"tokenizer.json: .*2,147,483,648"):
        Tokenizer.from_json(json.dumps(content))


def test_a_graph_with_other_labels_or_settings(folders: dict[str, Path], tmp_path: Path) -> None:
    labels = json.dumps({"kind": "single", "names": ["a", "b"]}).encode()
    refused(damaged(folders["graph"], tmp_path / "labels", labels__json=labels), "3 outputs", "2 labels")
    for number, form in enumerate(([], {}, 7)):
        config = model_folder.read_config(folders["graph"])
        config["onnx"]["text_form"] = form
        out = tmp_path / str(number)
        content = model_folder.read_files(folders["graph"], config)
        description = {key: value for key, value in config.items() if key not in ("files", "format", "sha256")}
        refused(
            model_folder.write_folder(out, {**content, "config.json": model_folder.config(description, content)}),
            "'text_form'",
        )


@pytest.mark.parametrize("tags", [5, None, "xy", [None, "O"], [1, 2], [["O"], "B-x"], {"O": 1}])
def test_tags_that_are_no_list_of_names(folders: dict[str, Path], tmp_path: Path, tags: Any) -> None:
    graph = export(folders["tagger"], tmp_path / "graph").out
    for number, (folder, part) in enumerate(((folders["tagger"], "head"), (graph, "onnx"))):
        config = model_folder.read_config(folder)
        config[part]["tags"] = tags
        content = model_folder.read_files(folder, config)
        description = {key: value for key, value in config.items() if key not in ("files", "format", "sha256")}
        out = tmp_path / str(number)
        model_folder.write_folder(out, {**content, "config.json": model_folder.config(description, content)})
        with pytest.raises(UserError, match=r"tag|config") as raised:
            load(out)
        assert Path(raised.value.where).parent == out


@pytest.mark.parametrize("mean", [10**400, float("inf"), float("nan"), "x"])
def test_a_quantity_whose_mean_is_no_number(mean: Any) -> None:
    with pytest.raises(UserError, match="not a set of labels"):
        Labels.from_json(json.dumps({"kind": "numeric", "names": [], "mean": mean, "std": 1.0}), where="labels.json")


@pytest.mark.parametrize("name", ["kind", "direction", "pooling"])
def test_a_name_of_the_head_that_is_a_list(folders: dict[str, Path], name: str) -> None:
    config = model_folder.read_config(folders["classifier"])
    config["head"] = {**config["head"], name: []}
    with pytest.raises(UserError, match=r"config.json: .*" + name):
        artifact.from_folder(folders["classifier"], config)


@pytest.mark.parametrize(
    "setting",
    [
        {"max_length": [[]]},
        {"max_length": 0},
        {"max_length": True},
        {"normalize": 1},
        {"pooling": ["mean"]},
        {"prompts": 3},
        {"prompts": {"query": 1}},
        {"default_prompt": 3},
    ],
)
def test_a_sentence_embedding_of_the_wrong_type_is_refused_by_name(setting: dict[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(UserError, match=rf"not the description of a sentence embedding \({name}\)"):
        sentence_embedding(setting, {}, 4)


@pytest.mark.parametrize("kind", ["classifier", "tagger", "qa"])
def test_a_tokenizer_with_more_tokens_than_the_table_is_refused(
    kind: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """A damaged name of a special token makes it one more; its id would have no vector."""
    content = json.loads((folders[kind] / "tokenizer.json").read_text())
    content["added_tokens"][0]["content"] = "[ELSE]"
    content["added_tokens"][0]["id"] = 10_000
    folder = damaged(folders[kind], tmp_path / "m", tokenizer__json=json.dumps(content).encode())
    with pytest.raises(UserError, match=r"the tokenizer has [\d,]+ tokens and the model's table|tokenizer"):
        load(folder)


def test_a_graph_of_pairs_in_both_orders_takes_no_single_texts(folders: dict[str, Path], tmp_path: Path) -> None:
    config = model_folder.read_config(folders["graph"])
    config["onnx"]["both_orders"] = True
    content = model_folder.read_files(folders["graph"], config)
    description = {key: value for key, value in config.items() if key not in ("files", "format", "sha256")}
    folder = model_folder.write_folder(
        tmp_path / "m", {**content, "config.json": model_folder.config(description, content)}
    )
    refused(folder, "reads pairs in both orders")
