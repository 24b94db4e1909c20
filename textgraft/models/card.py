"""Model card: README.md of an artifact, rendered from run.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textgraft.core import formatting

STAGES = {
    "pretrain": "A language model, pretrained on general text. Adapt it to a domain or fine-tune it on labels.",
    "adapt": "A language model, adapted to a domain's text without labels. Fine-tune it on labels.",
    "cove": "A translation model, whose encoder gives contextual word vectors (CoVe). Fine-tune it on labels.",
    "finetune": "A model fine-tuned on labelled texts.",
    "zero-shot": "A classifier made from descriptions of its labels and from unlabelled texts.",
    "distil": "A smaller model trained on the outputs of a larger one.",
    "qa": "A model fine-tuned for extractive question answering: it answers with a span of the text.",
    "tag": "A model fine-tuned to tag words: parts of speech or named entities.",
    "vectors": "Static word vectors: one for each word, in every context. Use them with textgraft vectors and embed.",
}
LANGUAGES = ("language", "texts", "tokens", "share", "share in training", "epochs in a pass", "held-out loss")
LINEAR = "A linear classifier, fitted to labelled texts; no neural network."
ENSEMBLE = "A weighted ensemble of models fitted to labelled texts."
LIMITS = {
    "pretrain": "It was trained on what is named under Data and reproduces the errors and biases of that text.",
    "adapt": "It was trained on what is named under Data and reproduces the errors and biases of that text.",
    "cove": (
        "It was trained on what is named under Data and reproduces the errors and biases of those sentences and of "
        "their translators. A translation may contain what the sentence does not."
    ),
    "finetune": (
        "It predicts one of its labels for any text, also for text of another kind, language or time, where the "
        "scores above do not hold. Check the calibration before acting on a probability."
    ),
    "zero-shot": (
        "It predicts one of its labels for any text. Nothing but their descriptions says what they mean, so it may "
        "draw the line between them elsewhere. Measure it on labelled texts. Its probabilities are not calibrated."
    ),
    "distil": (
        "It reproduces the errors of its teacher; see the limits of that model. The agreement with it does not hold "
        "for text of another kind than it was trained on."
    ),
    "qa": (
        "It answers with a span of the given text, true or not; for texts and questions of another kind or language "
        "the scores above do not hold. Probabilities compare the candidate answers of one question only."
    ),
    "tag": (
        "It predicts one of its tags for every word, also in text of another kind, language or time, where the scores "
        "above do not hold. The probabilities are not calibrated."
    ),
    "vectors": (
        "A word has one vector for all its meanings, and words in similar contexts are near each other, antonyms too. "
        "The vectors reproduce the biases of the text that they were trained on."
    ),
}


def model_card(run: Mapping[str, Any]) -> str:
    """Render a model card as Markdown: description, data, training, results beside baselines, limits, licence.

    Args:
        run: The content of run.json. Missing entries are left out. These are used:
            `name`, `stage`, `linear` (a sentence on a linear classifier), `ensemble` (its candidates' weights),
            `chosen` (a sentence on model selection), `language`, `languages` (name -> {texts, tokens, share,
            share_read, times_read, held_out}), `base`, `teacher` (each like `base`, with a `verdict` on the student's
            agreement with them), `data`, `tokens_seen`, `seconds`, `recipe`, `command`, `settings`, `distillation` (its
            weights and temperature), `seeds`, `held_out` (`before` and `after`, each metric -> value), `results` (as in
            results.json) or its entries: `methods` (name -> {metric: {mean, low, high}, minutes, peak_mb}), `metrics`,
            `calibration`, `limits`, `licence`, `versions`, `machine`.
    """
    run = {**(run.get("results") or {}), **run}
    stage = str(run.get("stage", ""))
    sections = [
        _heading(run, stage),
        _section("Data", _data(run)),
        _section("Training", _training(run)),
        _section("Results", _results(run)),
        _section("Limits", [str(run.get("limits") or LIMITS.get(stage, ""))]),
        _section("Licence", [_text(run.get("licence") or "Not stated: ask the provider of this model.")]),
        _section("Made with", _made_with(run)),
    ]
    return "\n\n".join(s for s in sections if s) + "\n"


def _heading(run: Mapping[str, Any], stage: str) -> str:
    kind = (
        LINEAR if run.get("linear") else ENSEMBLE if len(_members(run)) > 1 else STAGES.get(stage, "A textgraft model.")
    )
    lines = [f"# {_text(run.get('name') or 'A textgraft model')}", kind]
    for sentence in ("linear", "chosen"):
        if run.get(sentence):
            lines.append(_text(run[sentence]).rstrip(".") + ".")
    if run.get("language"):
        lines.append(f"Language: {_text(run['language'])}.")
    base = run.get("base") or {}
    if base.get("name"):
        lines.append(f"It started from `{_text(base['name'])}`{_of_stage(base)}.")
    teachers = [f"`{_text(one.get('name'))}`{_of_stage(one)}" for one in run.get("teacher") or () if one]
    if teachers:
        lines.append(f"Its teacher: {' and '.join(teachers)}.")
    return "\n\n".join(lines)


def _members(run: Mapping[str, Any]) -> list[str]:
    """The members of an ensemble: the candidates with a weight."""
    candidates = (run.get("ensemble") or {}).get("candidates") or {}
    return [name for name, one in candidates.items() if one.get("weight")]


def _of_stage(base: Mapping[str, Any]) -> str:
    seen = f", {base['tokens_seen']:,} tokens seen" if base.get("tokens_seen") else ""
    return f" ({_text(base['stage'])}{seen})" if base.get("stage") else ""


def _data(run: Mapping[str, Any]) -> list[str]:
    lines = [f"- {_label(key)}: {_value(value)}" for key, value in (run.get("data") or {}).items()]
    base = (run.get("base") or {}).get("data") or {}
    lines += [f"- before that, {_label(key)}: {_value(value)}" for key, value in base.items()]
    if run.get("tokens_seen"):
        lines.append(f"- tokens seen in training: {run['tokens_seen']:,}")
    rows = language_rows(run.get("languages") or {})
    if rows:
        lines += ["", "| " + " | ".join(LANGUAGES) + " |", "|" + " --- |" * len(LANGUAGES)]
        lines += ["| " + " | ".join([_text(row[0]), *row[1:]]) + " |" for row in rows]
    return lines


def language_rows(languages: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Rows of cells under the header LANGUAGES, one for each language of the pretraining."""
    return [
        [
            language,
            f"{about['texts']:,}",
            f"{about['tokens']:,}",
            f"{100 * about['share']:.1f} %",
            f"{100 * about['share_read']:.1f} %",
            f"{about['times_read']:.2f}",
            f"{about['held_out']['loss']:.4g}",
        ]
        for language, about in languages.items()
    ]


def in_int8(words: int, same: int) -> str:
    """A sentence on the agreement of a tagger's int8 tags with those in floating point."""
    return f"{same:,} of {words:,} tags are the same in int8"


def _training(run: Mapping[str, Any]) -> list[str]:
    lines = []
    if run.get("recipe"):
        lines.append(f"- recipe: `{_text(run['recipe'])}`")
    if run.get("seconds"):
        lines.append(f"- time: {run['seconds'] / 60:,.1f} minutes")
    if run.get("seeds") is not None:
        lines.append(f"- seeds: {_value(run['seeds'])}")
    settings = {k: v for k, v in (run.get("settings") or {}).items() if v is not None}
    if settings:
        lines.append("- settings: " + ", ".join(f"{_label(k)} {_value(v)}" for k, v in settings.items()))
    if "in_int8" in run:
        lines.append(
            f"- inference precision: {_text(run.get('read_in', 'floating point'))}, {in_int8(**run['in_int8'])}"
        )
    distillation = {k: v for k, v in (run.get("distillation") or {}).items() if v is not None}
    if distillation:
        lines.append("- distillation: " + ", ".join(f"{_label(k)} {_value(v)}" for k, v in distillation.items()))
    if run.get("command"):
        lines += ["", "```", str(run["command"]).replace("```", "'''"), "```"]
    return lines


def _results(run: Mapping[str, Any]) -> list[str]:
    lines = _methods_table(run.get("methods") or {})
    if lines and run.get("test_n"):
        unit = {"qa": "questions", "tag": "sentences"}.get(str(run.get("stage")), "texts")
        lines.append(f"\nMeasured on {run['test_n']:,} held-out {unit}; in brackets the 95 % interval.")
    if run.get("teacher"):
        lines += ["", _text(run.get("verdict"))]
    metrics = {k: v for k, v in (run.get("metrics") or {}).items() if v is not None}
    if metrics:
        lines += ["", *(f"- {_label(name)}: {_score(value, name)}" for name, value in metrics.items())]
    held_out = run.get("held_out") or {}
    before, after = held_out.get("before") or {}, held_out.get("after") or {}
    for name in after:
        start = f" (before: {_score(before[name], name)})" if before.get(name) is not None else ""
        lines.append(f"- held-out {_label(name)}: {_score(after[name], name)}{start}")
    calibration = {k: v for k, v in (run.get("calibration") or {}).items() if v is not None}
    lines += [f"- calibration, {_label(name)}: {value:.3g}" for name, value in calibration.items()]
    return lines


def _methods_table(methods: Mapping[str, Mapping[str, Any]]) -> list[str]:
    scored = {name: [k for k, v in row.items() if isinstance(v, Mapping)] for name, row in methods.items()}
    columns = list(dict.fromkeys(k for names in scored.values() for k in names))
    extras = [k for k in ("minutes", "peak_mb") if any(row.get(k) is not None for row in methods.values())]
    if not columns:
        return []
    head = [
        "method",
        *map(_label, columns),
        *({"minutes": "minutes", "peak_mb": "peak MB"}[k] for k in extras),
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for name, row in methods.items():
        cells = [_score(row[k], k) if row.get(k) is not None else "" for k in columns]
        cells += [_cost(row.get(k), k) for k in extras]
        lines.append("| " + " | ".join([_text(name), *cells]) + " |")
    return lines


def _cost(value: float | None, name: str) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if name == "minutes" else f"{value:,.0f}"


def _made_with(run: Mapping[str, Any]) -> list[str]:
    lines = []
    for title in ("versions", "machine"):
        facts = {k: v for k, v in (run.get(title) or {}).items() if v is not None}
        if facts:
            lines.append(f"- {title}: " + ", ".join(f"{_label(k)} {_value(v)}" for k, v in facts.items()))
    return lines


def _section(title: str, lines: list[str]) -> str:
    text = "\n".join(lines).strip()
    return f"## {title}\n\n{text}" if text else ""


def _score(value: Any, metric: str) -> str:
    """A score, with its interval if it has one."""
    if isinstance(value, Mapping):
        if value.get("low") is None or value.get("high") is None:
            return _score(value.get("mean"), metric)
        return formatting.interval(value["mean"], value["low"], value["high"], metric)
    return formatting.score(value, metric) if isinstance(value, int | float) else _text(value)


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{_label(k)} {_value(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        shown = ", ".join(_value(v) for v in value[:20])
        return shown + (f", … ({len(value)} in all)" if len(value) > 20 else "")
    return _text(value)


def _label(key: str) -> str:
    return _text(formatting.metric_name(key))


def _text(value: Any) -> str:
    """User text escaped for one line of Markdown, also in a table cell."""
    text = " ".join(str(value).split())
    return "".join("\\" + c if c in "\\`*[]|" else {"<": "&lt;", ">": "&gt;"}.get(c, c) for c in text)
