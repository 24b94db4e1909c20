"""BLEU beside sacrebleu's own function and beside the paper's formula."""

from __future__ import annotations

import math
import sys
from collections import Counter

import pytest

from textgraft.core.errors import UserError
from textgraft.metrics.bleu import corpus_bleu, sacrebleu

HYPOTHESES = ["the cat sat on the mat today", "a dog runs over green grass", "nobody knows", "two men talk"]
REFERENCES = ["the cat sat on a mat today", "a dog runs on the green grass", "nobody knows it", "two men are talking"]


def by_the_formula(hypotheses: list[str], references: list[str]) -> float:
    """Papineni et al. 2002, §2.3: clipped n-gram precisions of the corpus, and the penalty for brevity."""
    matched, total = [0] * 4, [0] * 4
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        words, others = hypothesis.split(), reference.split()
        for n in range(4):
            grams, gold = (
                Counter(tuple(side[i : i + n + 1]) for i in range(len(side) - n)) for side in (words, others)
            )
            matched[n] += sum((grams & gold).values())
            total[n] += sum(grams.values())
    c, r = (sum(len(text.split()) for text in texts) for texts in (hypotheses, references))
    penalty = 1.0 if c > r else math.exp(1 - r / c)
    return 100 * penalty * math.exp(sum(math.log(m / t) for m, t in zip(matched, total, strict=True)) / 4)


def test_bleu_is_sacrebleus_and_the_papers() -> None:
    own = pytest.importorskip("sacrebleu")
    found = corpus_bleu(HYPOTHESES, REFERENCES)
    assert found["bleu"]["mean"] == own.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert found["bleu"]["mean"] == pytest.approx(by_the_formula(HYPOTHESES, REFERENCES))
    assert found["bleu"]["low"] < found["bleu"]["mean"] < found["bleu"]["high"]
    assert f"version:{own.__version__}" in found["signature"]
    assert (found["words"], found["reference_words"]) == (18, 21)
    assert found == corpus_bleu(HYPOTHESES, REFERENCES)  # the bootstrap too


def test_the_best_and_the_worst() -> None:
    pytest.importorskip("sacrebleu")
    assert corpus_bleu(REFERENCES, REFERENCES)["bleu"]["mean"] == pytest.approx(100)
    assert corpus_bleu(["xyz"] * 4, REFERENCES)["bleu"]["mean"] == pytest.approx(0, abs=1)
    assert corpus_bleu([""] * 4, REFERENCES)["bleu"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    one = corpus_bleu(["a small dog runs away"], ["a small dog runs away"])["bleu"]
    assert one["low"] == one["high"] == one["mean"]


def test_without_sacrebleu_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(UserError) as refused:
        sacrebleu()
    assert "pip install 'textgraft[translate]'" in refused.value.remedy


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], ["a", "b"])])
def test_what_cannot_be_compared(hypotheses: list[str], references: list[str]) -> None:
    with pytest.raises(ValueError, match="beside"):
        corpus_bleu(hypotheses, references)
