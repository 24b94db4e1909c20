"""textgraft qa: extractive question answering."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_note, print_table
from textgraft.cli.groups import Verb, group_of
from textgraft.cli.output_files import validate_out_file
from textgraft.core.context import RunContext
from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.data.squad import Squad
    from textgraft.tasks.question_answering.predictor import QAModel, QAPrediction

Folder = Annotated[str, typer.Argument(help="The folder of a model from `textgraft qa finetune`, or hf:FOLDER.")]
Questions = Annotated[
    Path,
    typer.Argument(
        help="Questions with answers, as SQuAD's .json (or .json.gz, .xz, …), or as rows of Hugging Face's data sets."
    ),
]
DropMisplaced = Annotated[bool, typer.Option("--drop-misplaced", help="Leave out answers whose offsets are wrong.")]
Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold", help="Predict no answer where its score exceeds that of the best span by more than this."
    ),
]
MaxAnswerTokens = Annotated[
    int | None, typer.Option("--max-answer-tokens", min=1, help="The longest answer, in tokens; else as in training.")
]
PredictionsOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="A .json file for {id: answer}, the format of SQuAD's scripts.")
]
NBestOut = Annotated[Path | None, typer.Option("--n-best", help="A .json file for the best answers to each question.")]


def finetune(
    train: Questions,
    out: o.OutFolder,
    model: o.DefaultModel = None,
    valid: Annotated[
        Path | None, typer.Option("--valid", help="Questions for the selection of the best epoch.")
    ] = None,
    test: Annotated[Path | None, typer.Option("--test", help="Questions for the final evaluation only.")] = None,
    held_out: Annotated[
        float, typer.Option("--held-out", help="Without --valid and --test, the share of the articles to evaluate on.")
    ] = 0.1,
    questions: Annotated[
        int | None,
        typer.Option("--questions", min=1, help="Train on this many; a larger sample contains a smaller one."),
    ] = None,
    test_questions: Annotated[
        int | None, typer.Option("--test-questions", min=1, help="Evaluate on this many questions.")
    ] = None,
    recipe: o.Recipe = "default",
    layer_aggregation: o.LayerAggregation = "last",
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=8, help="The most tokens of a window, question included.")
    ] = 384,
    stride: Annotated[int, typer.Option("--stride", min=1, help="Tokens between the starts of two windows.")] = 128,
    max_question: Annotated[int, typer.Option("--max-question", min=1, help="Longer questions are truncated.")] = 64,
    max_answer_tokens: MaxAnswerTokens = 30,
    empty_windows: Annotated[
        bool,
        typer.Option("--empty-windows/--no-empty-windows", help="Train on windows without the answer too."),
    ] = True,
    threshold: Threshold = 0.0,
    drop_misplaced: DropMisplaced = False,
    baseline: Annotated[
        bool, typer.Option("--baseline/--no-baseline", help="Evaluate the most similar sentence for comparison.")
    ] = True,
    minutes: o.Minutes = None,
    patience: o.Patience = None,
    seed: o.Seed = 0,
    precision: o.Precision = "auto",
    device: o.Device = "auto",
    sharding: o.Sharding = "none",
    activation_checkpointing: o.ActivationCheckpointing = False,
    threads: o.Threads = None,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    as_json: o.AsJson = False,
) -> None:
    """Train a QA model on questions with answers and evaluate it beside the most similar sentence."""
    from textgraft.cli.resumable import resumable, validate_out
    from textgraft.data.windows import WindowSettings
    from textgraft.tasks.question_answering.finetune import QAOptions, qa_finetune
    from textgraft.tasks.question_answering.predictor import SearchSettings
    from textgraft.training.settings import Settings

    validate_out(out, overwrite)
    o.use_threads(threads)
    options = QAOptions(
        recipe=recipe,
        windows=WindowSettings(max_tokens, stride, max_question),
        search=SearchSettings(max_answer_tokens=max_answer_tokens or 30, threshold=threshold or 0.0),
        empty_windows=empty_windows,
        held_out=held_out,
        questions=questions,
        evaluation_questions=test_questions,
        baseline=baseline,
        layer_aggregation=layer_aggregation,
        settings=Settings(
            seed=seed,
            precision=precision,
            minutes=minutes,
            patience=patience,
            device=device,
            sharding=sharding,
            activation_checkpointing=activation_checkpointing,
        ),
    )
    paths = {"train": train, "valid": valid, "test": test}
    parts = {name: _read(path, drop_misplaced) for name, path in paths.items() if path is not None}
    if valid is None and test is None and not (quiet or as_json):  # JSON has the evaluation split
        print_note("textgraft: there is no --test, so some articles are held out for evaluation.")
    with resumable(out):
        result = qa_finetune(
            parts["train"],
            out,
            model=model,
            valid=parts.get("valid"),
            test=parts.get("test"),
            options=options,
            context=RunContext(show=not quiet, overwrite=overwrite),
        )
    if as_json:
        print_json({"out": out, "evaluation_split": result.record["evaluation_split"], **result.record["results"]})
    else:
        print(result.table())
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
    """Evaluate a QA model: exact match and F1 as SQuAD's scripts compute them, with intervals."""
    from textgraft.tasks.question_answering.predictor import answers_by_id, scores

    for path in (out, n_best):
        validate_out_file(path, (".json",), "answers")
    squad = _read(file, drop_misplaced)
    o.use_threads(threads)
    predictions = _qa_model(model, threshold, max_answer_tokens, precision, show=not quiet).answer(squad)
    result = scores(squad, answers_by_id(predictions)).summary()
    _write(predictions, out, n_best)
    _print_scores(result, as_json)


def score(
    file: Questions,
    answers: Annotated[Path, typer.Argument(help="Answers to them, as {id: answer} in a .json file.")],
    drop_misplaced: DropMisplaced = False,
    as_json: o.AsJson = False,
) -> None:
    """Evaluate the answers of any program, by the same metrics."""
    from textgraft.tasks.question_answering.predictor import scores

    squad = _read(file, drop_misplaced)
    _print_scores(scores(squad, read_predictions(answers)).summary(), as_json)


def answer(
    model: Folder,
    file: Annotated[Path | None, typer.Argument(help="Questions as for `qa finetune`; answers are ignored.")] = None,
    question: Annotated[list[str] | None, typer.Option("--question", help="A question; may be repeated.")] = None,
    context: Annotated[
        Path | None, typer.Option("--context", help="A text file with the context of the questions.")
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
    """Answer questions: those in a file, or --question about the text in --context."""
    from textgraft.core.formatting import printable
    from textgraft.tasks.question_answering.predictor import answers_by_id

    for path in (out, n_best):
        validate_out_file(path, (".json",), "answers")
    squad = _questions(file, question, context)
    o.use_threads(threads)
    predictions = _qa_model(model, threshold, max_answer_tokens, precision, show=not quiet and file is not None).answer(
        squad
    )
    _write(predictions, out, n_best)
    if as_json:
        answers: dict[str, Any] = {"answers": answers_by_id(predictions)}
        print_json(answers if file is not None else {**answers, "n_best": {r.id: r.as_json() for r in predictions}})
    elif out is None:
        for prediction in predictions:
            print(printable(f"{prediction.id}\t{' '.join(prediction.text.split())}"))
    if out is not None and not as_json:
        print_note(f"Written: {out} ({len(predictions):,} answers)")


def _read(path: Path, drop_misplaced: bool) -> Squad:
    from textgraft.data.squad import read_squad

    return read_squad(path, misplaced="drop" if drop_misplaced else "refuse")


def _qa_model(model: str, threshold: float | None, longest: int | None, precision: str, *, show: bool) -> QAModel:
    from textgraft.tasks.question_answering.predictor import QAModel

    return QAModel(model, threshold=threshold, max_answer_tokens=longest, precision=precision, show=show)


def _questions(file: Path | None, questions: list[str] | None, context: Path | None) -> Squad:
    """Return the questions of a file, or of options. Raises UserError for both, neither, or half of one."""
    from textgraft.data.squad import Article, Paragraph, Question, Squad
    from textgraft.data.text_files import lines

    if file is not None and not questions and context is None:
        return _read(file, drop_misplaced=True)
    if file is not None or not questions or context is None:
        remedy = "For example: textgraft qa answer MODEL --question 'Who?' --context text.txt"
        raise UserError("name either a file, or --question and --context.", remedy=remedy)
    asked_questions = tuple(Question(text, text) for text in dict.fromkeys(questions))
    return Squad((Article("", (Paragraph("".join(lines(context)), asked_questions),)),), source=str(context))


def read_predictions(path: Path) -> dict[str, str]:
    """Return the {id: answer} of a file. Raises UserError for any other content."""
    import json

    from textgraft.data.text_files import explained

    with explained(path):
        text = path.read_bytes()
    remedy = 'Give a file such as {"id of a question": "its answer"}.'
    try:
        content = json.loads(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # lists in lists, thousands deep
        raise UserError(f"this is not JSON ({error}).", where=str(path), remedy=remedy) from error
    if not isinstance(content, dict):
        raise UserError("this is no JSON object.", where=str(path), remedy=remedy)
    invalid = next((id for id, answer in content.items() if not isinstance(answer, str)), None)
    if invalid is not None:
        raise UserError(f"the answer to '{invalid}' is no text.", where=str(path), remedy=remedy)
    return content


def _write(predictions: list[QAPrediction], out: Path | None, n_best: Path | None) -> None:
    """Write the files of predictions and of n-best lists, where they are named."""
    from textgraft.core.files import write_atomically
    from textgraft.tasks.question_answering.predictor import answers_by_id, as_file

    if out is not None:
        write_atomically(out, as_file(answers_by_id(predictions)))
    if n_best is not None:
        write_atomically(n_best, as_file({prediction.id: prediction.as_json() for prediction in predictions}))


def _print_scores(scores: Mapping[str, Any], as_json: bool) -> None:
    from textgraft.core import formatting

    if as_json:
        print_json(scores)
        return
    rows = []
    for name, value in scores.items():
        if isinstance(value, Mapping):
            rows.append(
                [formatting.metric_name(name), formatting.interval(value["mean"], value["low"], value["high"], name)]
            )
        elif isinstance(value, float):
            rows.append([formatting.metric_name(name), formatting.score(value, name)])
    print_table([f"{scores['questions']:,} questions", "score [95 % interval]"], rows)
    if scores["unanswered"]:
        print(f"{scores['unanswered']:,} questions have no prediction and count as wrong.")


VERBS: tuple[Verb, ...] = (
    (
        "finetune",
        finetune,
        "textgraft qa finetune train.json --test test.json --model hf:bert-base --out qa-model",
    ),
    ("evaluate", evaluate, "textgraft qa evaluate qa-model test.json --json"),
    ("answer", answer, "textgraft qa answer qa-model --question 'Who wrote it?' --context chapter.txt"),
    ("score", score, "textgraft qa score test.json predictions.json"),
)
"""Name, function and example of each verb, in the order of --help."""


def group() -> typer.Typer:
    """Return the group of commands `textgraft qa`."""
    return group_of(VERBS, "Extractive question answering: the answer to a question is a span of a text, as in SQuAD.")
