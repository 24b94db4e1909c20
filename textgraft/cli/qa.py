"""textgraft qa: questions about a text, answered with a stretch of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table, say
from textgraft.cli.groups import Verb, group_of
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.data.squad import Squad
    from textgraft.tasks.question_answering.predictor import QAModel, Reply

Folder = Annotated[str, typer.Argument(help="A model's folder, made by `textgraft qa finetune`, or hf:FOLDER.")]
Questions = Annotated[Path, typer.Argument(help="Questions with answers, as SQuAD's .json (or .json.gz, .xz, …).")]
DropMisplaced = Annotated[
    bool, typer.Option("--drop-misplaced", help="Leave out answers that are not where they are said to stand.")
]
Threshold = Annotated[
    float | None,
    typer.Option("--threshold", help="No answer where that scores higher than the best one by more than this."),
]
MaxAnswerTokens = Annotated[
    int | None, typer.Option("--max-answer-tokens", min=1, help="The longest answer; else as in training.")
]
PredictionsOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="A .json file for {id: answer}, as official scripts read it.")
]
NBestOut = Annotated[Path | None, typer.Option("--n-best", help="A .json file for each question's best answers.")]


def finetune(
    train: Questions,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; must not exist.")],
    model: o.DefaultModel = None,
    valid: Annotated[Path | None, typer.Option("--valid", help="Questions to choose the best epoch by.")] = None,
    test: Annotated[Path | None, typer.Option("--test", help="Questions that nothing is chosen by.")] = None,
    held_out: Annotated[
        float, typer.Option("--held-out", help="With neither, the share of the articles to measure on.")
    ] = 0.1,
    questions: Annotated[
        int | None, typer.Option("--questions", min=1, help="Learn from so many; a larger sample holds a smaller one.")
    ] = None,
    test_questions: Annotated[int | None, typer.Option("--test-questions", min=1, help="Measure on so many.")] = None,
    recipe: o.Recipe = "default",
    layer_aggregation: o.LayerAggregation = "last",
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=8, help="Of a window, question included.")] = 384,
    stride: Annotated[
        int, typer.Option("--stride", min=1, help="How far a window begins behind the one before, in tokens.")
    ] = 128,
    max_question: Annotated[int, typer.Option("--max-question", min=1, help="Longer questions are cut.")] = 64,
    max_answer_tokens: MaxAnswerTokens = 30,
    empty_windows: Annotated[
        bool,
        typer.Option("--empty-windows/--no-empty-windows", help="Learn from windows without the answer too."),
    ] = True,
    threshold: Threshold = 0.0,
    drop_misplaced: DropMisplaced = False,
    baseline: Annotated[bool, typer.Option("--baseline/--no-baseline", help="The nearest sentence beside it.")] = True,
    minutes: o.Minutes = None,
    patience: o.Patience = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Make a reader from questions with answers, and say how good it is beside the nearest sentence."""
    from textgraft.cli.train import check_out, resumable
    from textgraft.data.windows import WindowSettings
    from textgraft.tasks.question_answering.finetune import QAOptions, qa_finetune
    from textgraft.tasks.question_answering.predictor import SearchSettings
    from textgraft.training.loop import Settings

    check_out(out, overwrite)
    o.use_threads(threads)
    options = QAOptions(
        recipe=recipe,
        windows=WindowSettings(max_tokens, stride, max_question),
        search=SearchSettings(max_answer_tokens=max_answer_tokens or 30, threshold=threshold or 0.0),
        empty_windows=empty_windows,
        held_out=held_out,
        questions=questions,
        examined_questions=test_questions,
        baseline=baseline,
        layer_aggregation=layer_aggregation,
        settings=Settings(seed=seed, precision=precision, minutes=minutes, patience=patience, device=device),
    )
    paths = {"train": train, "valid": valid, "test": test}
    parts = {name: _read(path, drop_misplaced) for name, path in paths.items() if path is not None}
    if valid is None and test is None and not quiet:
        say("textgraft: there is no --test, so some articles are held out to measure on.")
    with resumable(out):
        done = qa_finetune(
            parts["train"],
            out,
            model=model,
            valid=parts.get("valid"),
            test=parts.get("test"),
            options=options,
            overwrite=overwrite,
            show=not quiet,
        )
    if as_json:
        print_json({"out": out, "examined": done.record["examined"], **done.record["results"]})
    else:
        print(done.table())
        print(f"Written: {out} (predictions.json and nbest.json in it)")


def evaluate(
    model: Folder,
    file: Questions,
    out: PredictionsOut = None,
    n_best: NBestOut = None,
    threshold: Threshold = None,
    max_answer_tokens: MaxAnswerTokens = None,
    drop_misplaced: DropMisplaced = False,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Say how good a reader's answers are: exact match and F1 as SQuAD's scripts compute them, with intervals."""
    from textgraft.tasks.question_answering.predictor import predictions, scores

    _check_files(out, n_best)
    squad = _read(file, drop_misplaced)
    o.use_threads(threads)
    replies = _reader(model, threshold, max_answer_tokens, precision, show=not quiet).answer(squad)
    found = scores(squad, predictions(replies)).summary()
    _write(replies, out, n_best)
    _tell(found, as_json)


def score(
    file: Questions,
    given: Annotated[Path, typer.Argument(help="Answers to them, as {id: answer} in a .json file.")],
    drop_misplaced: DropMisplaced = False,
    as_json: o.AsJson = False,
) -> None:
    """Say how good any program's answers are, by the same measures."""
    from textgraft.tasks.question_answering.predictor import scores

    squad = _read(file, drop_misplaced)
    _tell(scores(squad, read_predictions(given)).summary(), as_json)


def answer(
    model: Folder,
    file: Annotated[Path | None, typer.Argument(help="Questions as SQuAD's .json; answers in it are not read.")] = None,
    question: Annotated[
        list[str] | None, typer.Option("--question", help="A question itself; may be repeated.")
    ] = None,
    context: Annotated[
        Path | None, typer.Option("--context", help="The text that it is about, as a text file.")
    ] = None,
    out: PredictionsOut = None,
    n_best: NBestOut = None,
    threshold: Threshold = None,
    max_answer_tokens: MaxAnswerTokens = None,
    precision: o.Precision = "auto",
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Answer questions: those of a file, or --question about the text in --context."""
    from textgraft.core.formatting import printable
    from textgraft.tasks.question_answering.predictor import predictions

    _check_files(out, n_best)
    squad = _asked(file, question, context)
    o.use_threads(threads)
    replies = _reader(model, threshold, max_answer_tokens, precision, show=not quiet and file is not None).answer(squad)
    _write(replies, out, n_best)
    if as_json:
        answers: dict[str, Any] = {"answers": predictions(replies)}
        print_json(answers if file is not None else {**answers, "n_best": {r.id: r.listed() for r in replies}})
    elif out is None:
        for reply in replies:
            print(printable(f"{reply.id}\t{' '.join(reply.text.split())}"))
    if out is not None and not as_json:
        say(f"Written: {out} ({len(replies):,} answers)")


def _read(path: Path, drop_misplaced: bool) -> Squad:
    from textgraft.data.squad import read_squad

    return read_squad(path, misplaced="drop" if drop_misplaced else "refuse")


def _reader(model: str, threshold: float | None, longest: int | None, precision: str, *, show: bool) -> QAModel:
    from textgraft.tasks.question_answering.predictor import QAModel

    return QAModel(model, threshold=threshold, max_answer_tokens=longest, precision=precision, show=show)


def _asked(file: Path | None, questions: list[str] | None, context: Path | None) -> Squad:
    """The questions of a file, or those given with one text. Raises UserError for both, neither, or half of one."""
    from textgraft.data.squad import Article, Paragraph, Question, Squad
    from textgraft.data.text_files import lines

    if file is not None and not questions and context is None:
        return _read(file, drop_misplaced=True)
    if file is not None or not questions or context is None:
        remedy = "For example: textgraft qa answer MODEL --question 'Who?' --context text.txt"
        raise UserError("name either a file, or --question and --context.", remedy=remedy)
    asked = tuple(Question(text, text) for text in dict.fromkeys(questions))
    return Squad((Article("", (Paragraph("".join(lines(context)), asked),)),), source=str(context))


def read_predictions(path: Path) -> dict[str, str]:
    """{id: answer} of a file. Raises UserError for anything else in it."""
    import json

    from textgraft.data.text_files import explained

    with explained(path):
        text = path.read_bytes()
    remedy = 'Give a file such as {"id of a question": "its answer"}.'
    try:
        content = json.loads(text.decode("utf-8-sig"))
    except ValueError as error:
        raise UserError(f"this is not JSON ({error}).", where=str(path), remedy=remedy) from error
    if not isinstance(content, dict):
        raise UserError("this is no JSON object.", where=str(path), remedy=remedy)
    wrong = next((id for id, answer in content.items() if not isinstance(answer, str)), None)
    if wrong is not None:
        raise UserError(f"the answer to '{wrong}' is no text.", where=str(path), remedy=remedy)
    return content


def _check_files(*paths: Path | None) -> None:
    from textgraft.core.files import validate_writable

    for path in paths:
        if path is not None and path.suffix != ".json":
            raise UserError("answers are written as .json.", where=str(path), remedy="Name such a file.")
        if path is not None:
            validate_writable(path)


def _write(replies: list[Reply], out: Path | None, n_best: Path | None) -> None:
    """The two files of SQuAD's programs, where they are asked for."""
    from textgraft.core.files import write_atomically
    from textgraft.tasks.question_answering.predictor import as_file, predictions

    if out is not None:
        write_atomically(out, as_file(predictions(replies)))
    if n_best is not None:
        write_atomically(n_best, as_file({reply.id: reply.listed() for reply in replies}))


def _tell(found: Mapping[str, Any], as_json: bool) -> None:
    from textgraft.core import formatting

    if as_json:
        print_json(found)
        return
    rows = []
    for name, value in found.items():
        if isinstance(value, Mapping):
            rows.append(
                [formatting.metric_name(name), formatting.interval(value["mean"], value["low"], value["high"], name)]
            )
        elif isinstance(value, float):
            rows.append([formatting.metric_name(name), formatting.score(value, name)])
    print_table([f"{found['questions']:,} questions", "score [95 % interval]"], rows)
    if found["unanswered"]:
        print(f"{found['unanswered']:,} questions have no prediction and count as wrong.")


VERBS: tuple[Verb, ...] = (
    (
        "finetune",
        finetune,
        "textgraft qa finetune train.json --test test.json --model hf:bert-base --out reader",
    ),
    ("evaluate", evaluate, "textgraft qa evaluate reader test.json --json"),
    ("answer", answer, "textgraft qa answer reader --question 'Who wrote it?' --context chapter.txt"),
    ("score", score, "textgraft qa score test.json predictions.json"),
)
"""Name, function and an example for --help, in the order that help lists them."""


def group() -> typer.Typer:
    """`textgraft qa` with its verbs."""
    return group_of(VERBS, "Questions about a text, answered with a stretch of it: SQuAD's task and files.")
