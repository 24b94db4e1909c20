"""textgraft generate: what it prints, alone and as JSON, and what it says of mistakes."""

from __future__ import annotations

from programs import Desk, Program

from textgraft import GenerateOptions, generate


def test_one_prompt_appears_as_it_is_written(desk: Desk, run: Program) -> None:
    options = ["--temperature", "1", "--top-p", "0.9", "--seed", "5", "--max-tokens", "20", "--precision", "fp32"]
    result = run("generate", desk.lm, "--prompt", "A great film", *options)
    assert (result.code, result.err) == (0, "")
    wanted = GenerateOptions(max_tokens=20, temperature=1.0, top_p=0.9, seed=5, precision="fp32")
    expected = generate(desk.lm, ["A great film"], wanted)[0].text
    assert expected
    assert result.out == f"A great film{expected}\n"


def test_several_prompts_and_beams(desk: Desk, run: Program) -> None:
    result = run("generate", desk.lm, "-p", "A great", "-p", "The acting", "--beams", "3", "--max-tokens", "5")
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()] == ["A", "The"]


def test_json(desk: Desk, run: Program) -> None:
    result = run("generate", desk.lm, "-p", "A great", "-p", "The", "--max-tokens", "4", "--stop", "zzz", "--json")
    texts = result.json()["texts"]
    assert [t["prompt"] for t in texts] == ["A great", "The"]
    for text in texts:
        assert len(text["ids"]) == text["tokens"] <= 4
        assert text["ended"] in ("end", "length")
        assert text["log_probability"] < 0


def test_mistakes(desk: Desk, run: Program) -> None:
    run("generate", desk.lm).mistake("prompt")
    run("generate", desk.classifier, "-p", "a").mistake("cannot generate text")
    run("generate", desk.lm, "-p", "a", "--top-k", "5").mistake("Give a temperature too")
    run("generate", desk.lm, "-p", "a", "--max-tokens", "0").mistake("max_tokens is 0")
    run("generate", desk.lm, "-p", "a", "--device", "tpu").mistake("unknown device 'tpu'")
