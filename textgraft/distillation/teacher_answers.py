"""Teacher predictions, computed once and cached."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from textgraft.core.progress import Meter
from textgraft.data.examples import TargetKind
from textgraft.distillation.targets import DISTILLED_TARGETS
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint

TEXTS_AT_ONCE = 2048


def cached_teacher_logits(
    outputs: Callable[[Sequence[str]], np.ndarray],
    texts: Sequence[str],
    kind: TargetKind,
    *,
    folder: Path,
    title: str,
    show: bool,
) -> tuple[np.ndarray, float]:
    """Logits (N, C) of a classifier's `outputs`, and the seconds that its predictions took.

    They are computed for 2,048 texts at a time; each chunk is a file in `folder` and is not computed again.
    """
    chunks: list[np.ndarray] = []
    seconds = 0.0
    with Meter(title, len(texts), shown=show, unit="texts") as meter:
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            chunk = texts[first : first + TEXTS_AT_ONCE]
            path = folder / f"{title}-{first // TEXTS_AT_ONCE + 1:06d}.safetensors"
            if not path.exists():
                started = time.perf_counter()
                logits = DISTILLED_TARGETS[kind].logits(outputs(chunk))
                took = time.perf_counter() - started
                save_checkpoint(path, {"logits": torch.from_numpy(logits)}, {"seconds": took})
            tensors, state = load_checkpoint(path)
            chunks.append(tensors["logits"].numpy())
            seconds += state["seconds"]
            for text in chunk:
                meter.add(len(text), len(text.split()))
    return np.concatenate(chunks), seconds
