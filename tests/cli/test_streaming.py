"""`pretrain --streaming` and `adapt --streaming` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import Desk, Program, unchanged

from textgraft.models.loading import load_network


@pytest.mark.slow
def test_a_mixture_of_sources(desk: Desk, tmp_path: Path, run: Program) -> None:
    (tmp_path / "more.jsonl").write_text("".join(f'{{"body": "A film of {i} hours."}}\n' for i in range(40)))
    command = ["pretrain", "--streaming", "--source", f"pool={desk / 'pool.txt'}", "--weight", "pool=0.75"]
    command += ["--source", f"more={tmp_path / 'more.jsonl'}", "--weight", "more=0.25", "--text", "body"]
    command += ["--recipe", desk / "backward.toml", "--tokenizer", desk.lm, "--tokens", "2000", "--quiet", "--json"]
    done = run(*command, "--tokenizer-processes", "0", "--out", tmp_path / "lm")
    assert (done.code, done.err) == (0, ""), done
    assert done.json()["held_out"]["tokens"] > 0
    data = load_network(tmp_path / "lm").run["data"]
    assert data["sources"] == ["pool: pool.txt", "more: more.jsonl"]
    assert data["streamed"]["more"]["share"] == pytest.approx(0.25, abs=0.03)
    assert data["streamed"]["more"]["epochs"] >= 1


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["POOL"], ["no known end", "--tokens"]),
        ([], ["no text was named", "--source NAME=FILES"]),
        (["POOL", "--source", "a=POOL"], ["some sources have a name"]),
        (["--source", "a"], ["--source", "'a' is not of the form NAME="]),
        (["--source", "a=POOL", "--weight", "a=much"], ["--weight", "'much'"]),
        (["--source", "a=POOL", "--weight", "b=1"], ["no source 'b' to weigh", "Sources: a."]),
        (["--source", "a=POOL", "--weight", "a=0.5"], ["sum to 0.5", "a=1"]),
        (["POOL", "--language", "en=POOL"], ["streamed text has no languages", "--weight"]),
        (["POOL", "--tokens", "500", "--tokenizer-processes", "10000"], ["10000 tokenizer processes", "Give 0"]),
        (["POOL", "--tokens", "500", "--tokenizer", "nowhere.json"], ["nowhere.json"]),
        (["train.csv", "--tokens", "500"], ["no such file", "train.csv"]),
        (["s3://bucket/texts", "--tokens", "500"], ["s3://bucket/texts"]),
    ],
)
def test_mistakes(arguments: list[str], parts: list[str], desk: Desk, tmp_path: Path, run: Program) -> None:
    given = [argument.replace("POOL", str(desk / "pool.txt")) for argument in arguments]
    with unchanged(tmp_path):
        done = run("pretrain", "--streaming", *given, "--out", tmp_path / "lm", "--recipe", desk / "backward.toml")
    done.mistake(*parts)


@pytest.mark.parametrize("option", [["--source", "a=b"], ["--weight", "a=1"], ["--text", "body"]])
def test_options_of_streamed_text_only(option: list[str], desk: Desk, tmp_path: Path, run: Program) -> None:
    run("pretrain", desk / "pool.txt", "--out", tmp_path / "lm", *option).mistake(option[0], "Add --streaming")


@pytest.mark.slow
def test_adapt_to_streamed_text(desk: Desk, tmp_path: Path, run: Program) -> None:
    command = ["adapt", "--streaming", desk / "pool.txt", "--model", desk.lm, "--tokens", "3000", "--quiet", "--json"]
    done = run(*command, "--tokenizer-processes", "0", "--out", tmp_path / "adapted")
    assert (done.code, done.err) == (0, ""), done
    assert load_network(tmp_path / "adapted").run["data"]["sources"] == ["pool.txt"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--streaming", "POOL"], ["no known end", "--tokens"]),
        (["--streaming", "POOL", "--tokens", "900", "--own-vocabulary"], ["--own-vocabulary", "without --streaming"]),
        (["--streaming", "POOL", "--encoding", "utf-16"], ["--encoding", "without --streaming"]),
        (["--streaming", "s3://bucket/texts", "--tokens", "500"], ["s3://bucket/texts"]),
        (["POOL", "--source", "a=POOL"], ["--source", "Add --streaming"]),
        (["POOL", "--valid", "POOL"], ["--valid", "Add --streaming"]),
    ],
)
def test_mistakes_of_adapting(arguments: list[str], parts: list[str], desk: Desk, tmp_path: Path, run: Program) -> None:
    given = [argument.replace("POOL", str(desk / "pool.txt")) for argument in arguments]
    with unchanged(tmp_path):
        done = run("adapt", *given, "--model", desk.lm, "--out", tmp_path / "adapted")
    done.mistake(*parts)
