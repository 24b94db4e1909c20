"""What works with which architecture of `transformers`: a table of tiny random checkpoints and textgraft's verbs.

Every cell is a call of textgraft on a checkpoint of two layers of width 16: "yes" where it ran and its result was
checked, "no" and a number where it was refused with a message, which is below the table. Times mean nothing here.

    .venv/bin/python research/checkpoint_matrix.py --out docs/checkpoint-matrix.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import textgraft
from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.data.squad import parse_squad
from textgraft.data.windows import WindowSettings
from textgraft.models import loading
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.question_answering.finetune import QAOptions
from textgraft.tasks.tagging.finetune import TagOptions
from textgraft.training.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))
from made_up_questions import questions, write_recipe
from made_up_reviews import reviews
from made_up_tags import sentences
from tiny_checkpoints import BRIDGED, OWN, save_checkpoint

COLUMNS = ("embed", "adapt", "finetune", "tag", "qa", "export", "convert back")
MAX_TOKENS, LINE = 32, 118


class Checkpoint:
    """A tiny checkpoint and the verbs of a column each, which raise UserError where they are refused."""

    def __init__(self, name: str, folder: Path) -> None:
        self.model = f"hf:{save_checkpoint(name, folder / 'checkpoint')}"
        self.folder, self.recipe = folder, str(write_recipe(folder, 1))

    def embed(self) -> None:
        vectors = textgraft.embed(self.model, reviews(5, 1)[0])
        assert vectors.shape[0] == 5
        assert np.isfinite(vectors).all()

    def adapt(self) -> None:
        settings = Settings(minutes=0.02)
        textgraft.adapt(reviews(60, 3)[0], self.folder / "adapted", model=self.model, settings=settings, context=QUIET)

    def finetune(self) -> None:
        train, test = (Examples(*reviews(24, seed), "single") for seed in (1, 2))
        options = FinetuneOptions(recipe=self.recipe, baselines=False, report=False, max_tokens=MAX_TOKENS)
        textgraft.finetune(
            train, self.folder / "classifier", model=self.model, test=test, options=options, context=QUIET
        )
        assert len(list(textgraft.predict(self.folder / "classifier", ["a fine film"]))) == 1

    def tag(self) -> None:
        options = TagOptions(recipe=self.recipe, baseline=False, max_tokens=MAX_TOKENS)
        train, test = sentences(20, 1), sentences(8, 2)
        textgraft.tag_finetune(
            train, self.folder / "tagger", model=self.model, test=test, options=options, context=QUIET
        )

    def qa(self) -> None:
        windows = WindowSettings(max_tokens=48, stride=16, max_question=16)
        options = QAOptions(recipe=self.recipe, baseline=False, windows=windows)
        train, test = (parse_squad(questions(count, count)) for count in (12, 4))
        textgraft.qa_finetune(train, self.folder / "qa", model=self.model, test=test, options=options, context=QUIET)

    def export(self) -> None:
        from textgraft.tasks.export import export

        export(self.folder / "classifier", self.folder / "graph")

    def convert_back(self) -> None:
        import transformers

        theirs = textgraft.convert(self.model, self.folder / "theirs", to="huggingface")
        back = loading.load_network(f"hf:{theirs}").model.values()
        values = loading.load_network(self.model).model.values()
        assert all(torch.equal(value, back[name]) for name, value in values.items())
        transformers.AutoConfig.from_pretrained(theirs)


def cell(name: str, run: Callable[[], None], refusals: list[str]) -> str:
    """ "yes", or "no" and the number of the message."""
    try:
        run()
    except UserError as error:
        message = " ".join(f"{error.message} {error.remedy}".split()).replace(f"'{name}'", "NAME")
        if message not in refusals:
            refusals.append(message)
        return f"no ({refusals.index(message) + 1})"
    return "yes"


def rows(names: Sequence[str], columns: Sequence[str], folder: Path) -> tuple[list[list[str]], list[str]]:
    """The cells of each architecture, and the messages of those that are refused."""
    refusals: list[str] = []
    made = []
    for name in names:
        (folder / name).mkdir()
        checkpoint: Any = Checkpoint(name, folder / name)
        kind = "own" if name in OWN else "bridge"
        cells = [cell(name, getattr(checkpoint, column.replace(" ", "_")), refusals) for column in columns]
        made.append([f"`{name}`", kind, *cells])
        print(*made[-1], sep="\t", file=sys.stderr, flush=True)
    return made, refusals


def table(made: Sequence[Sequence[str]], refusals: Sequence[str], columns: Sequence[str]) -> str:
    """The Markdown of the page."""
    head = ["architecture", "network", *columns]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in made)]
    wrapped = {"width": LINE, "subsequent_indent": "   ", "break_long_words": False, "break_on_hyphens": False}
    notes = [textwrap.fill(f"{number}. {message}", **wrapped) for number, message in enumerate(refusals, start=1)]
    return "\n".join([*lines, "", *notes]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="architectures; all of them by default")
    parser.add_argument("--columns", default=",".join(COLUMNS), help="verbs, separated by commas")
    parser.add_argument("--out", type=Path, help="Markdown file; stdout by default")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    columns = given.columns.split(",")
    with tempfile.TemporaryDirectory() as folder:
        made, refusals = rows(given.names or [*OWN, *BRIDGED], columns, Path(folder))
    page = table(made, refusals, columns)
    if given.out:
        given.out.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
