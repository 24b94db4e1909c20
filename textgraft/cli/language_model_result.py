"""The scores of a pretrained or adapted language model on held-out text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textgraft.cli.console import print_json, print_table

MEASURES = (
    *("loss", "perplexity", "perplexity_forward", "perplexity_backward", "next_sentence_loss", "perplexity_per_word"),
    "bits_per_character",
)


def print_language_model(out: Path, run: Mapping[str, Any], as_json: bool) -> None:
    """Print the held-out scores of a language model, before and after training, and its folder."""
    from textgraft.models.card import LANGUAGES, language_rows

    held_out = run["held_out"]
    if as_json:
        record = {name: run[name] for name in ("stage", "tokens_seen", "held_out", "languages") if name in run}
        print_json({"out": out, **record})
        return
    columns = [name for name in ("before", "after") if name in held_out]
    names = [name for name in MEASURES if name in held_out["after"]]
    rows = [[name.replace("_", " "), *(f"{held_out[c][name]:,.4g}" for c in columns)] for name in names]
    print_table([f"on {held_out['tokens']:,} held-out tokens", *columns], rows)
    if run.get("languages"):
        print_table(LANGUAGES, language_rows(run["languages"]))
    print(f"Written: {out}")
