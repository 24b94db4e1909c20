"""`textgraft tokenize`: what it says, for people and for scripts, and that pretrain takes what it wrote."""

from __future__ import annotations

import json
from pathlib import Path

from programs import Desk, Program

from textgraft.models.loading import load_network


def test_tokens_for_two_models(desk: Desk, tmp_path: Path, run: Program) -> None:
    recipe = ["--recipe", desk / "backward.toml"]
    done = run("tokenize", desk / "pool.txt", *recipe, "--out", tmp_path / "tokens")
    assert done.code == 0, done
    assert all(word in done.out for word in ("documents", "valid", "Written"))
    assert "Encoding" in done.err
    for seed in ("0", "1"):
        short = ["--tokens", "500", "--quiet", "--seed", seed]
        assert run("pretrain", tmp_path / "tokens", *recipe, *short, "--out", tmp_path / seed).code == 0
    assert load_network(tmp_path / "0").run["data"]["sources"] == ["pool.txt"]
    again = run("tokenize", tmp_path / "tokens", "--out", tmp_path / "again", *recipe)
    again.mistake("tokens already", "textgraft pretrain")
    run("adapt", tmp_path / "tokens", "--model", desk.lm, "--out", tmp_path / "x").mistake(
        "tokens, and not text", "pretrain"
    )


def test_json_and_nothing_left_behind_after_a_mistake(desk: Desk, tmp_path: Path, run: Program) -> None:
    command = ["tokenize", "--recipe", desk / "backward.toml", "--out", tmp_path / "tokens", "--quiet", "--json"]
    run(*command).mistake("no text was named")
    run(*command, tmp_path / "nothing.txt").mistake("nothing.txt")
    assert not list(tmp_path.iterdir())
    done = run(*command, "--language", f"en={desk / 'pool.txt'}")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert list(told["corpora"]) == ["train-en", "valid-en"]
    assert told["corpora"]["train-en"]["documents"] == 199
    run(*command, desk / "pool.txt").mistake("exists already")


def test_a_url_and_a_named_column(desk: Desk, tmp_path: Path, run: Program) -> None:
    (tmp_path / "more.jsonl").write_text("".join(f'{{"body": "A film of {i} hours."}}\n' for i in range(40)))
    command = ["tokenize", f"file://{tmp_path}/more.jsonl", "--recipe", desk / "backward.toml", "--tokenizer", desk.lm]
    done = run(*command, "--text", "body", "--out", tmp_path / "tokens", "--json", "--quiet")
    assert (done.code, done.err) == (0, ""), done
    assert done.json()["corpora"]["train"]["documents"] == 36
    run(*command, "--text", "nothing", "--out", tmp_path / "x").mistake("no column 'nothing'", "body")
    run(*command, "--language", f"en={desk / 'pool.txt'}", "--out", tmp_path / "x").mistake("some have none")
