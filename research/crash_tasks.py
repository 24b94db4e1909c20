"""Further results that research/crash.py kills: of tagging, answering, distilling, comparing and other models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from textgraft.comparison.compare import compare
from textgraft.comparison.methods import MethodOptions
from textgraft.core.context import QUIET
from textgraft.data.examples import Examples
from textgraft.data.squad import read_squad
from textgraft.distillation.distil import distil
from textgraft.distillation.options import DistilOptions
from textgraft.tasks.language_modeling.adapt import adapt
from textgraft.tasks.language_modeling.adapt_streamed import adapt_streamed
from textgraft.tasks.language_modeling.streamed_text import StreamedText
from textgraft.tasks.question_answering.finetune import QAOptions, qa_finetune
from textgraft.tasks.tagging.finetune import TagOptions, tag_finetune
from textgraft.tasks.tagging.stacked import Network
from textgraft.training.settings import Settings
from textgraft.word_embeddings.formats import save_vectors
from textgraft.word_embeddings.options import VectorOptions
from textgraft.word_embeddings.stack import Stack
from textgraft.word_embeddings.training import train_vectors

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import made_up_questions
import made_up_tags
from tiny_checkpoints import save_checkpoint

OFTEN = Settings(save_seconds=0.0, precision="fp32")


def prepare_tasks(folder: Path) -> None:
    """Encoders, recipes and questions that the tasks share."""
    for name in ("bert", "lstm"):
        made_up_questions.write_encoder(folder, name)
        made_up_tags.write_encoder(folder / "of-tags", name)
    made_up_questions.write_recipe(folder, 4)
    made_up_questions.write_questions(folder / "questions.json", 60, 0)
    for architecture in ("electra", "modernbert"):
        save_checkpoint(architecture, folder / architecture, auto="AutoModelForMaskedLM")
    recipe = made_up_questions.RECIPE.format(epochs=4)
    adapting = recipe[recipe.index("[finetune]") :].replace("finetune", "adapt")
    (folder / "one.toml").write_text(recipe + adapting, encoding="utf-8")


def pool(folder: Path) -> list[str]:
    return (folder / "pool.txt").read_text(encoding="utf-8").splitlines()[:200]


def labelled(folder: Path, count: int) -> Examples:
    """Labelled reviews out of the pool, which say themselves what they are."""
    texts = pool(folder)[:count]
    good = ("great", "wonderful", "superb", "lovely")
    return Examples(texts, ["good" if any(word in text for word in good) else "bad" for text in texts], "single")


def make_tags(folder: Path, out: Path) -> None:
    options = TagOptions(recipe=str(folder / "quick-4.toml"), settings=OFTEN, crf=True)
    encoder = folder / "of-tags" / "bert"
    tag_finetune(made_up_tags.sentences(60, 0), out, model=encoder, options=options, context=QUIET)


def make_stacked_tags(folder: Path, out: Path) -> None:
    network = Network(hidden_dim=12)
    options = TagOptions(recipe=str(folder / "quick-4.toml"), settings=OFTEN, crf=True, scheme="BIOES", network=network)
    stack = Stack.open([folder / "of-tags" / "lstm"])
    tag_finetune(made_up_tags.sentences(60, 0), out, model=stack, options=options, context=QUIET)


def make_answers(folder: Path, out: Path) -> None:
    options = QAOptions(recipe=str(folder / "quick-4.toml"), settings=OFTEN)
    qa_finetune(read_squad(folder / "questions.json"), out, model=folder / "bert", options=options, context=QUIET)


def make_student(folder: Path, out: Path) -> None:
    options = DistilOptions(recipe=str(folder / "quick-4.toml"), settings=OFTEN)
    distil(folder / "ensemble", pool(folder), out, student=folder / "lm", options=options, context=QUIET)


def make_vectors(folder: Path, out: Path) -> None:
    save_vectors(train_vectors(pool(folder), "glove", options=VectorOptions(dimensions=8, epochs=20, min_count=1)), out)


def make_comparison(folder: Path, out: Path) -> None:
    options = MethodOptions(model=folder / "adapted", recipe=str(folder / "tuning.toml"), seeds=2, show=False)
    methods = ["linear", "co-training", "no-adapt"]
    data = labelled(folder, 120)
    train, test = data.take(range(60)), data.take(range(60, 120))
    compare(train, out, test=test, unlabelled=pool(folder), methods=methods, labels=[20, 40], options=options)


def make_bridged(folder: Path, out: Path) -> None:
    settings = Settings(save_seconds=0.0, precision="fp32")
    model, recipe = f"hf:{folder / 'electra'}", str(folder / "one.toml")
    adapt(pool(folder), out, model=model, recipe=recipe, settings=settings, context=QUIET)


def make_modern(folder: Path, out: Path) -> None:
    model, recipe = f"hf:{folder / 'modernbert'}", str(folder / "one.toml")
    adapt(pool(folder), out, model=model, recipe=recipe, settings=OFTEN, context=QUIET)


def make_streamed(folder: Path, out: Path) -> None:
    text = StreamedText([folder / "pool.txt"], block_tokens=3000)
    recipe = str(folder / "one.toml")
    adapt_streamed(text, out, model=folder / "lm", recipe=recipe, tokens=20_000, settings=OFTEN, context=QUIET)


TASKS: dict[str, Callable[[Path, Path], None]] = {
    "tags": make_tags,
    "stacked-tags": make_stacked_tags,
    "answers": make_answers,
    "student": make_student,
    "vectors": make_vectors,
    "comparison": make_comparison,
    "bridged": make_bridged,
    "modern": make_modern,
    "streamed": make_streamed,
}
"""What makes each result, from those of research/crash.py and the files of `prepare_tasks`."""
