"""BLEU as sacrebleu counts it, so that it can be set beside what others report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textgraft.core.errors import UserError

SAMPLES = 1000
"""How many times the sentences are drawn anew for the interval."""


def sacrebleu() -> Any:
    """sacrebleu's BLEU class. Raises UserError where it is not installed: to be asked before any long work."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        remedy = "Install it (pip install 'textgraft[translate]'), or leave BLEU out (--no-bleu)."
        raise UserError("BLEU is counted by sacrebleu, which is not installed.", remedy=remedy) from error
    return BLEU


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU of translations of N sentences (Papineni et al. 2002; Post 2018, arXiv:1804.08771), 0 to 100.

    `bleu` has mean, low and high, a bootstrap's 95 % interval over sentences (Koehn 2004) around the score itself;
    `precisions` are of 1- to 4-grams, `signature` is sacrebleu's: its tokenizer, smoothing and version. Raises
    UserError where sacrebleu is missing.
    """
    if len(hypotheses) != len(references) or not references:
        raise ValueError(f"{len(hypotheses)} translations beside {len(references)} references")
    metric = sacrebleu()()
    found = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=SAMPLES)
    half = float(found._ci) if len(references) > 1 else 0.0
    score = min(100.0, float(found.score))  # which rounding may pass
    return {
        "bleu": {"mean": score, "low": max(0.0, score - half), "high": min(100.0, score + half)},
        "precisions": [float(p) for p in found.precisions],
        "brevity_penalty": float(found.bp),
        "words": int(found.sys_len),
        "reference_words": int(found.ref_len),
        "signature": str(metric.get_signature()),
    }
