"""The readers that research/fuzz.py damages files for: for each, sound files and a function that reads one."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import hashlib
import json
import lzma
import sqlite3
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data import large_files
from textgraft.data.checks import check
from textgraft.data.examples import Examples
from textgraft.data.readers import read, read_texts
from textgraft.data.squad import read_squad
from textgraft.data.tagged import FORMATS, TagReading, format_name, read_tagged
from textgraft.data.text_rows import read_rows
from textgraft.models import artifact, model_folder, shared_files
from textgraft.models.loading import load
from textgraft.serving.app import application
from textgraft.serving.services import open_service
from textgraft.tasks.classification.ensemble import save_ensemble
from textgraft.tasks.classification.label_texts import LabelTexts
from textgraft.tasks.export import export
from textgraft.text.pretrained_folder import read_pretrained
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.recipes import load_recipe
from textgraft.word_embeddings.formats import VectorSource, convert_vectors, load_vectors

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))

TABLE = [
    ("text", "label"),
    ("a fine film", "pos"),
    ('so "dull", that', "neg"),
    ("zwei\nZeilen é", "pos"),
    ("ดีมาก", "neg"),
]
TEXTS = ["the captain sees the river", "how many river?", "", "é 📖"]
CONLL = "-DOCSTART- -X- O\n\nthe DT O\ncaptain NN B-PER\nAhab NN I-PER\n\nin IN O\nRome NN B-LOC\n"
CONLL_U = (
    "# sent_id = 1\n# text = vámonos al mar\n1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tvamos\tir\tVERB\t_\tMood=Imp\t0\troot\t_\tSpaceAfter=No\n2\tnos\tnos\tPRON\t_\t_\t1\tobj\t_\t_\n"
    "3\tal\tal\tADP\t_\t_\t4\tcase\t_\t_\n4\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\t_\n\n"
)
BRAT = "T1\tPER 0 4\tAnna\nT2\tLOC 12 16\tRome\nT3\tLOC 0 4;12 16\tAnna Rome\nR1\tin Arg1:T1 Arg2:T2\n#1\tNote T1\tx\n"
TAGS = (
    {"tokens": ["Anna", "in", "Rome"], "ner_tags": ["B-PER", "O", "B-LOC"]},
    {"text": "Anna in Rome", "label": [[0, 4, "PER"], [8, 12, "LOC"]]},
    {
        "text": "Anna in Rome",
        "tokens": [{"text": "Anna", "start": 0, "end": 4, "id": 0}],
        "spans": [{"start": 0, "end": 4, "label": "PER"}],
        "answer": "accept",
    },
    {
        "data": {"text": "Anna in Rome"},
        "annotations": [{"result": [{"value": {"start": 0, "end": 4, "text": "Anna", "labels": ["PER"]}}]}],
    },
    {
        "id": 0,
        "paragraphs": [{"sentences": [{"tokens": [{"orth": "Anna", "ner": "B-PER"}, {"orth": "in", "ner": "O"}]}]}],
    },
    {
        "text": "Anna in Rome",
        "ents": [{"start": 0, "end": 4, "label": "PER"}],
        "tokens": [{"id": 0, "start": 0, "end": 4}],
    },
    ["Anna in Rome", {"entities": [[0, 4, "PER"]]}],
)
QUESTION = {"id": "1", "question": "Where?", "answers": [{"text": "Rome", "answer_start": 8}], "is_impossible": False}
SQUADS = (
    {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": "Anna in Rome", "qas": [QUESTION]}]}]},
    {
        "id": "1",
        "title": "t",
        "context": "Anna in Rome",
        "question": "Where?",
        "answers": {"text": ["Rome"], "answer_start": [8]},
    },
)
LABELS_TOML = '[labels]\nrefund = "Money back"\ndelivery = ["Late", "Lost"]\n[examples]\nrefund = ["give it back"]\n'
VECTORS = "3 2\nthe 0.5 1e-3\nriver -1 2\né 0 0.25\n"


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        use: Reads a file, and what a user would do with it; a folder for `folder`.
        files: Sound files by name.
        folder: Directory of a sound model folder, of which one file is damaged and all hashes are corrected.
    """

    use: Callable[[Path], Any]
    files: Mapping[str, bytes]
    folder: Path | None = None


def csv(delimiter: str = ",") -> bytes:
    quoted = [delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in TABLE]
    return ("\n".join(quoted) + "\n").encode()


def json_lines(values: Sequence[Any]) -> bytes:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()


def table_rows() -> list[dict[str, str]]:
    return [dict(zip(TABLE[0], row)) for row in TABLE[1:]]


def binary_tables(folder: Path) -> dict[str, bytes]:
    """The table in formats that libraries write."""
    import openpyxl
    import pandas

    frame = pandas.DataFrame(table_rows())
    frame.to_parquet(folder / "a.parquet")
    frame.to_feather(folder / "a.feather")
    frame.to_feather(folder / "b.feather", compression="uncompressed")
    frame.assign(n=[1.5, None, 2, 3], many=[["x"], [], ["y", "z"], None]).to_parquet(
        folder / "b.parquet", compression=None
    )
    book = openpyxl.Workbook()
    for row in TABLE:
        book.active.append(row)
    book.save(folder / "a.xlsx")
    connection = sqlite3.connect(folder / "a.db")
    connection.execute("PRAGMA page_size = 512")
    connection.execute("CREATE TABLE reviews (text TEXT, label TEXT)")
    connection.executemany("INSERT INTO reviews VALUES (?, ?)", TABLE[1:])
    connection.commit()
    connection.close()
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in/a.csv", csv())
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def json_tables(rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """The rows as one JSON value, in the ways of pandas and of services, and over several lines."""
    names = list(rows[0])
    columns = {name: [row[name] for row in rows] for name in names}
    cells = {name: {str(i): cell for i, cell in enumerate(column)} for name, column in columns.items()}
    split = {"columns": names, "index": [*range(len(rows))], "data": [list(row.values()) for row in rows]}
    service = {"rows": [{"row_idx": i, "row": row} for i, row in enumerate(rows)], "total": len(rows)}
    tables = (columns, cells, {f"r{i}": row for i, row in enumerate(rows)}, split, {"data": rows}, service)
    whole = [json.dumps(table, ensure_ascii=False, indent=indent) for table in tables for indent in (None, 1)]
    return [one.encode() for one in (*whole, "\n".join(json.dumps(row, indent=1) for row in rows))]


def use_table(path: Path) -> None:
    """What `check`, `predict` and `pretrain` do with a table."""
    check(read_both(path))
    for row in read_rows(path):
        _ = row.text
    list(read_texts(path))


def read_both(path: Path) -> Examples:
    """The examples of a file; they and its refusal are the same with the texts on disk."""
    large_files.LARGE = 0
    try:
        examples = read(path)
    except UserError as refused:
        with suppress(UserError):
            large_files.read_large(path)
            raise AssertionError(f"read_large reads what read refuses: {refused}") from refused
        raise
    kept = large_files.read_large(path)
    assert (list(kept.texts), kept.labels, kept.kind) == (list(examples.texts), examples.labels, examples.kind)
    places, others = ((list(one.ids or ()), one.unit, list(one.lines or ())) for one in (kept, examples))
    assert places == others
    return kept


def use_examples(path: Path) -> None:
    examples = read_both(path)
    assert len(examples.texts) == len(examples.labels or examples.texts)


def use_tagged(path: Path) -> None:
    tagged = read_tagged(path, illegal_tags="repair", illegal_spans="repair")
    assert all(len(sentence.words) == len(sentence.tags) for sentence in tagged.sentences)


def use_untagged(path: Path) -> None:
    for _ in FORMATS[format_name(path)].stream(path, TagReading()):
        pass


def use_brat(path: Path) -> None:
    (path.with_suffix(".txt")).write_text("Anna is in  Rome.", encoding="utf-8")
    use_tagged(path)


def use_brat_text(path: Path) -> None:
    path.with_suffix(".ann").write_text(BRAT, encoding="utf-8")
    use_tagged(path.with_suffix(".ann"))


def use_squad(path: Path) -> None:
    squad = read_squad(path, misplaced="drop")
    squad.content_hash()
    _ = squad.rules


def use_vectors(path: Path) -> None:
    vectors = load_vectors(path, errors="replace")
    vectors.vectors(["the", "unseen"])
    convert_vectors(VectorSource(path, errors="replace"), path.with_suffix(".copy"), to="word2vec", overwrite=True)


def use_tokenizer(path: Path) -> None:
    tokenizer = Tokenizer.load(path)
    for ids in tokenizer.encode_batch(TEXTS):
        tokenizer.decode(ids)
    tokenizer.encode(TEXTS[0])


def use_published_tokenizer(path: Path) -> None:
    if path.name == "settings.json":
        (path.parent / "tokenizer_config.json").write_bytes(path.read_bytes())
        (path.parent / "vocab.txt").write_text(
            "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\n<s>\n</s>\n<pad>\n<mask>\nthe\n##s\n"
        )
    read_pretrained(path.parent, "mpnet").encode_batch(TEXTS)


def use_recipe(path: Path) -> None:
    load_recipe(str(path))


def use_labels(path: Path) -> None:
    _ = LabelTexts.of(str(path)).labelled


def use_model(folder: Path) -> None:
    """Load a model and ask it by its HTTP service, as `serve` does."""
    service = open_service(folder)
    items = service.to_items(service.Request.model_validate(REQUESTS[service.path]))
    service.to_response(service.Request.model_validate(REQUESTS[service.path]), service.answer(items))


def use_vectors_folder(folder: Path) -> None:
    load_vectors(folder).vectors(["the", "unseen"])
    load(folder) if (folder / "labels.json").exists() else None


REQUESTS: Mapping[str, Any] = {
    "/predict": {"texts": ["the captain sees the river", "é"], "probabilities": True},
    "/tag": {"texts": ["the captain sees the river", ""]},
    "/answer": {"questions": [{"context": "the river has 12 lamps", "question": "how many river?"}]},
}
BODIES: Sequence[Any] = (
    {"texts": ["the captain", "é"], "probabilities": True, "abstain_below": 0.5, "explain": False},
    {"texts": ["the captain sees it"], "explain": True},
    {"questions": [{"context": "the river has 12 lamps", "question": "how many river?"}], "n_best": 2},
    {"texts": [["a", "b"]]},
    {"texts": [{"context": "a", "question": "b", "options": ["c", "d"]}]},
)


class Asked:
    """An application that is asked without a network: the body in the file, on its route; a 5xx is an error."""

    def __init__(self, folder: Path) -> None:
        service = open_service(folder)
        self.app, self.path = application(service, folder.name), service.path
        self.loop = asyncio.new_event_loop()
        self.running = self.app.router.lifespan_context(self.app)
        self.loop.run_until_complete(self.running.__aenter__())

    def __call__(self, path: Path) -> None:
        status, said = self.loop.run_until_complete(self._ask(path.read_bytes()))
        assert status < 500 or status == 503, (status, said[:300])
        json.loads(said)

    async def _ask(self, body: bytes) -> tuple[int, bytes]:
        headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
        scope |= {
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
        }
        status, parts = [0], []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            status[0] = message.get("status", status[0])
            parts.append(message.get("body", b""))

        await self.app(scope, receive, send)
        return status[0], b"".join(parts)


def models(folder: Path) -> dict[str, Path]:
    """Small model folders of every kind."""
    import one_encoder
    from served import made

    import textgraft

    shared_files.MIN_BYTES = 256  # so that members of small models share files too
    names = {"classifier": "single", "multi": "multi", "numeric": "numeric", "tagger": "tagger", "qa": "reader"}
    made_folders = {kind: artifact.save(made(name), folder / kind) for kind, name in names.items()}
    made_folders |= {f"{kind}-pairs": artifact.save(made(kind), folder / kind) for kind in ("pairs", "choices")}
    texts, labels = ["good film", "great film", "bad film", "poor film"] * 4, ["pos", "pos", "neg", "neg"] * 4
    classifier = textgraft.TextClassifier(method="linear").fit(texts, labels)
    made_folders["linear"] = classifier.save(folder / "linear")
    members = one_encoder.members_on(one_encoder.tiny_encoder(), folder / "maps")
    made_folders["ensemble"] = save_ensemble(members, {"stage": "finetune"}, folder / "ensemble", weights=[0.4, 0.6])
    for kind in ("classifier", "tagger", "qa", "ensemble"):
        made_folders[f"onnx-{kind}"] = export(folder / kind, folder / f"onnx-{kind}").out
    (folder / "v.txt").write_text(VECTORS, encoding="utf-8")
    made_folders["vectors"] = convert_vectors(folder / "v.txt", folder / "vectors")
    return made_folders


def with_right_hashes(folder: Path) -> None:
    """Make all config.json of a folder agree with its files, so that damage is not refused by its hash alone."""
    for path in sorted(folder.rglob("config.json"), key=lambda path: -len(path.parts)):
        try:
            content = json.loads(path.read_bytes())
            hashes = {name: hashlib.sha256((path.parent / name).read_bytes()).hexdigest() for name in content["files"]}
            content = {key: value for key, value in content.items() if key != "sha256"} | {"files": hashes}
            digest = hashlib.sha256(model_folder.to_json(content)).hexdigest()
            path.write_bytes(model_folder.to_json(content | {"sha256": digest}))
        except (ValueError, TypeError, KeyError, OSError, AttributeError, RecursionError):
            continue


def vector_files(folder: Path) -> dict[str, bytes]:
    """Word vectors in every format of files."""
    (folder / "v.txt").write_text(VECTORS, encoding="utf-8")
    convert_vectors(folder / "v.txt", folder / "v.bin", to="word2vec-binary")
    convert_vectors(folder / "v.txt", folder / "g.txt", to="glove")
    (folder / "s.txt").write_text("\ufeff. . . 1 2 3\nthe  4\t5 6\nat name@domain.com 7 8 9\n", "utf-8")
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return {**files, "v.txt.gz": gzip.compress(files["v.txt"]), "v.bin.gz": gzip.compress(files["v.bin"])}


def tokenizer_files() -> dict[str, bytes]:
    from textgraft.text import wordpiece

    corpus = ["the captain sees the river, how many?"] * 3
    kinds = {
        "word": Tokenizer.train(corpus, kind="word"),
        "subword": Tokenizer.train(corpus, vocab_size=60),
        "bytes": Tokenizer.train(corpus, model="byte_level", vocab_size=280),
        "wordpiece": wordpiece.train(corpus, vocab_size=60),
    }
    return {f"{name}.json": json.dumps(json.loads(kind.to_json())).encode() for name, kind in kinds.items()}


def targets(scratch: Path) -> Iterator[tuple[str, Target]]:
    """All targets by name; their sound files are made in `scratch`."""
    places = {name: scratch / name for name in ("tables", "vectors", "models")}
    for place in places.values():
        place.mkdir(parents=True)
    tables, rows = binary_tables(places["tables"]), table_rows()
    utf16 = csv().decode().encode("utf-16")
    yield "csv", Target(use_table, {"a.csv": csv(), "b.csv": b"sep=;\n" + csv(";"), "c.csv": utf16, "d.csv": csv("|")})
    packed = {"a.csv.gz": gzip.compress(csv()), "a.csv.xz": lzma.compress(csv()), "a.csv.bz2": bz2.compress(csv())}
    yield "compressed", Target(use_table, packed)
    yield "tsv", Target(use_table, {"a.tsv": csv("\t"), "b.tsv": b'text\tlabel\n"a" b\tx\nc\ty\n'})
    array = json.dumps(rows, ensure_ascii=False, indent=1).encode()
    yield "json", Target(use_table, {"a.json": array, "b.json": json.dumps([{"text": "a", "label": [1, 0]}]).encode()})
    yield "json tables", Target(use_table, {f"{i}.json": one for i, one in enumerate(json_tables(rows))})
    more = [{"text": "a", "label": ["x", "y"], "id": 1}, {"text": None, "label": None, "id": "b"}]
    choices = [{"context": "c", "question": "q", "answerA": "a", "answerB": "b", "label": 1}]
    pairs = [{"premise": "a", "hypothesis": "b", "label": 0}, {"premise": "c", "hypothesis": "d", "label": 1}]
    lines = {
        "a.jsonl": json_lines(rows),
        "b.jsonl": json_lines(more),
        "c.jsonl": json_lines(choices),
        "d.jsonl": json_lines(pairs),
    }
    yield "json lines", Target(use_table, lines)
    for kind, suffixes in (
        ("xlsx", ".xlsx"),
        ("sqlite", ".db"),
        ("zip", ".zip"),
        ("parquet", ".parquet"),
        ("feather", ".feather"),
    ):
        yield kind, Target(use_examples, {name: data for name, data in tables.items() if name.endswith(suffixes)})
    yield (
        "text",
        Target(use_table, {"a.txt": "eins\n\nzwei é\r\nดี\n".encode(), "b.txt": "вторая\nx\n".encode("utf-16")}),
    )
    yield "fasttext text", Target(use_table, {"a.txt": "__label__x __label__y a b\n__label__x c é\nd\n".encode()})
    yield "conll", Target(use_tagged, {"a.conll": CONLL.encode(), "a.txt": b"the\tO\nAhab\tB-PER\n\nx\tO\n"})
    yield "conll-u", Target(use_tagged, {"a.conllu": CONLL_U.encode()})
    yield (
        "untagged",
        Target(
            use_untagged, {"a.conll": CONLL.encode(), "a.conllu": CONLL_U.encode(), "a.jsonl": json_lines(TAGS[:2])}
        ),
    )
    yield "brat", Target(use_brat, {"a.ann": BRAT.encode()})
    yield "brat text", Target(use_brat_text, {"a.txt": b"Anna is in  Rome."})
    yield "tags in json", Target(use_tagged, {f"{i}.jsonl": json_lines([one, one]) for i, one in enumerate(TAGS)})
    yield "tags in a list", Target(use_tagged, {f"{i}.json": json.dumps([one]).encode() for i, one in enumerate(TAGS)})
    framed = {name: {str(i): [f"{name}{i}", "O"] for i in range(3)} for name in ("tokens", "tags")}
    yield "tags in a frame", Target(use_tagged, {"a.json": json.dumps(framed).encode()})
    yield "squad", Target(use_squad, {"a.json": json.dumps(SQUADS[0]).encode(), "b.jsonl": json_lines([SQUADS[1]] * 2)})
    vectors = vector_files(places["vectors"])
    yield "vectors text", Target(use_vectors, {name: data for name, data in vectors.items() if ".txt" in name})
    yield "vectors binary", Target(use_vectors, {name: data for name, data in vectors.items() if ".bin" in name})
    yield "vectors fasttext", Target(use_vectors, {"f.bin": fasttext_model()})
    yield "tokenizer", Target(use_tokenizer, tokenizer_files())
    published = {
        "tokenizer.json": tokenizer_files()["wordpiece.json"],
        "vocab.txt": b"[UNK]\n<s>\n</s>\n<pad>\n<mask>\nthe\n##s\n",
    }
    settings = {"cls_token": "<s>", "unk_token": {"content": "[UNK]"}, "do_lower_case": True, "mask_token": "<mask>"}
    yield (
        "published tokenizer",
        Target(use_published_tokenizer, {**published, "settings.json": json.dumps(settings).encode()}),
    )
    recipes = Path(__file__).parents[1] / "recipes"
    chosen = [path for path in sorted(recipes.glob("*.toml")) if path.name != "defaults.toml"]
    yield "recipe", Target(use_recipe, {path.name: path.read_bytes() for path in chosen})
    yield "labels", Target(use_labels, {"a.toml": LABELS_TOML.encode()})
    for kind, folder in models(places["models"]).items():
        files = {
            str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
        }
        files = {name: data for name, data in files.items() if not name.endswith(".md")}
        use = use_vectors_folder if kind == "vectors" else use_model
        if "-pairs" not in kind:
            yield f"folder of {kind}", Target(use, files, folder)
        bodies = {f"{i}.json": json.dumps(body).encode() for i, body in enumerate(BODIES)}
        if kind in ("classifier", "multi", "tagger", "qa", "pairs-pairs", "choices-pairs", "linear"):
            yield f"http {kind}", Target(Asked(folder), bodies)


def fasttext_model() -> bytes:
    """A tiny model with n-grams in fastText's binary format."""
    import struct

    from textgraft.word_embeddings import fasttext_binary as format

    words, dimensions, buckets = ["</s>", "the", "river"], 2, 4
    settings = format.SETTINGS | {"dim": dimensions, "bucket": buckets, "minn": 2, "maxn": 3}
    parts = [format._HEADER.pack(format.MAGIC, format.VERSION, *(settings[name] for name in format.SETTINGS))]
    parts.append(struct.pack("<3i2q", len(words), len(words), 0, 9, -1))
    parts += [word.encode() + b"\0" + struct.pack("<qb", 3, 0) for word in words]
    for count in (len(words) + buckets, len(words)):
        matrix = np.arange(count * dimensions, dtype="<f4").tobytes()
        parts.append(struct.pack("<B2q", 0, count, dimensions) + matrix)
    return b"".join(parts)
