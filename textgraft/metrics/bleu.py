"""BLEU as computed by sacrebleu, comparable with published scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textgraft.core.errors import UserError

SAMPLES = 1000
"""Bootstrap resamples of the sentences."""


def sacrebleu() -> Any:
    """sacrebleu's BLEU class. Raises UserError if it is not installed: call it before any long work."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        remedy = "Install it (pip install 'textgraft[translate]'), or leave BLEU out (bleu=False)."
        raise UserError("BLEU needs sacrebleu, which is not installed.", remedy=remedy) from error
    return BLEU


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """BLEU of N translated sentences (Papineni et al. 2002; Post 2018, arXiv:1804.08771), 0 to 100.

    Args:
        hypotheses: The translations.
        references: One reference for each.

    Returns:
        `bleu` with mean, low and high of a 95 % bootstrap interval over sentences (Koehn 2004), centred on the score;
        `precisions` of 1- to 4-grams; `brevity_penalty`; `words` and `reference_words`; and sacrebleu's `signature`:
        its tokenizer, smoothing and version.

    Raises:
        UserError: sacrebleu is not installed.
        ValueError: There are no sentences, or the numbers differ.
    """
    if len(hypotheses) != len(references) or not references:
        raise ValueError(f"{len(hypotheses)} translations beside {len(references)} references")
    metric = sacrebleu()()
    result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=SAMPLES)
    half_width = float(result._ci) if len(references) > 1 else 0.0
    score = min(100.0, float(result.score))  # rounding may exceed 100
    return {
        "bleu": {"mean": score, "low": max(0.0, score - half_width), "high": min(100.0, score + half_width)},
        "precisions": [float(p) for p in result.precisions],
        "brevity_penalty": float(result.bp),
        "words": int(result.sys_len),
        "reference_words": int(result.ref_len),
        "signature": str(metric.get_signature()),
    }
