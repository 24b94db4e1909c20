"""The report is one file that runs and fetches nothing and survives any text; so does the model card."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from html.parser import HTMLParser

import numpy as np
import pytest

from textgraft.core.errors import UserError
from textgraft.data.problems import Problem
from textgraft.data.sequences import Truncation
from textgraft.metrics.calibration import confidence_and_correct, coverage_table, probabilities, reliability
from textgraft.metrics.classification import Interval, PairedTest, class_scores, confusion_matrix, evaluate
from textgraft.models.card import model_card
from textgraft.report import plots
from textgraft.tasks.classification.report import Method, Report, confident_mistakes, excerpt, render, write_report

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>&amp; $x$ \x00\ud800'
VOID = {"meta", "img", "br", "hr", "link"}


@dataclass
class Row:
    phase: str
    epoch: int
    group: str
    trainable: bool
    start: float
    peak: float
    end: float


class Page(HTMLParser):
    """Tags in the order they come, with their attributes; fails where one is not closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def named(self, tag: str) -> list[dict]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def report() -> Report:
    """A report with every section, in which every text that a user can choose is hostile."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 3)) * 3
    probs = probabilities(logits, "single", 2.5)
    targets = np.array([rng.choice(3, p=p) for p in probs])
    names = ["bad", EVIL, "ดี 😀"]
    rate = [0.0] * 5 + [0.01] * 5
    return Report(
        title=EVIL,
        verdict=EVIL,
        texts="300 texts",
        methods=[
            Method(EVIL, Interval(0.8, 0.75, 0.85), 0.01, 3.2, 900, EVIL),
            Method("linear", Interval(0.7, 0.65, 0.75), difference=PairedTest(0.1, 0.0001)),
            Method("not run"),
        ],
        scores=evaluate("single", targets, probs) | {"auc": None},
        classes=names,
        confusion=confusion_matrix(targets, probs.argmax(1), 3),
        per_class=class_scores(targets, probs.argmax(1), names),
        reliability={
            "as trained": reliability(probabilities(logits, "single"), targets),
            EVIL: reliability(probs, targets),
        },
        temperature=2.5,
        coverage=coverage_table(*confidence_and_correct(probs, targets)),
        mistakes=confident_mistakes([EVIL * 40] * 300, targets, probs, names, [f"{EVIL} {i}" for i in range(300)]),
        histories={EVIL: [{"phase": "all", "epoch": 1, "train_loss": 0.7, "loss": 0.6, "accuracy": 0.7}] * 3},
        schedule=[Row("all", 1, EVIL, False, 0, 0, 0), Row("all", 1, "head", True, 1e-3, 1e-2, 1e-4)],
        schedule_curves={EVIL: rate, "head": [0.01] * 10},
        steps_per_epoch=5,
        truncation=Truncation(texts=300, cut_texts=3, tokens=10_000, lost_tokens=125),
        problems=[Problem("warning", "test-leak", EVIL, EVIL, (3, 17), 2, EVIL)],
        facts={"command": EVIL, "seeds": [0, 1], "versions": {EVIL: EVIL}},
    )


@pytest.fixture(scope="module")
def source(report) -> str:
    return render(report)


@pytest.mark.slow
def test_report_runs_nothing_and_fetches_nothing(source):
    page = Page(source)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "iframe", "object", "embed", "link", "img", "form", "base"}
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "xlink:href", "src"):
            assert attributes.get(name, "#").startswith("#")
    assert not re.findall(r"url\((?!#)|@import", source)
    assert "default-src 'none'" in page.named("meta")[2]["content"]
    assert "\x00" not in source


def test_report_is_accessible(source):
    page = Page(source)
    assert page.named("html")[0]["lang"] == "en"
    assert len(page.named("svg")) == 5
    for svg in page.named("svg"):
        assert svg["role"] == "img"
        assert len(svg["aria-label"]) > 20
    assert len(page.named("caption")) == len(page.named("table")) == 10
    assert {attributes.get("scope") for attributes in page.named("th")} == {"col", "row"}
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in page.named("a"):
        assert attributes["href"][1:] in ids


def test_report_says_what_it_was_given(source):
    for expected in (
        "80.0 % [75.0, 85.0]",
        "+10.0 points (p &lt; 0.001)",
        "1.25 % of the tokens were lost to truncation (3 of 300 texts were cut)",
        "<td>frozen</td>".replace("<td>", '<td class="number" dir="auto">'),
        "Temperature, fitted on held-out texts: 2.5",
        "ดี 😀",
        "3, 17",
    ):
        assert expected in source
    assert "nan" not in re.sub(r"<svg.*?</svg>", "", source, flags=re.DOTALL).lower()
    assert "None" not in source


@pytest.mark.slow
def test_report_repeats_itself_and_is_utf8(report, source, tmp_path):
    assert write_report(tmp_path / "report.html", report).read_bytes().decode("utf-8") == source


def test_empty_sections_are_left_out():
    page = Page(render(Report(title="Nothing yet")))
    assert not page.named("section")
    assert not page.named("nav")
    assert "nothing suspicious was found" in render(Report(title="Clean", problems=()))


def test_many_classes_are_a_table_of_the_worst_pairs():
    matrix = np.eye(100, dtype=int) * 5
    matrix[7, 9] = 4
    source = render(Report(title="t", classes=[f"class {i}" for i in range(100)], confusion=matrix))
    assert "<svg" not in source
    assert len(re.findall(r'<th scope="row"', source)) == 1
    assert "44.4 %" in source


def test_report_cannot_be_written_where_a_file_stands(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(UserError, match="cannot write"):
        write_report(tmp_path / "file" / "report.html", Report(title="t"))
    assert (tmp_path / "file").read_text() == "kept"


def test_most_confident_mistakes_come_first_and_only_mistakes():
    probs = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.01, 0.99]])
    mistakes = confident_mistakes(list("abcd"), np.array([1, 1, 1, 0]), probs, ["no", "yes"], list("1234"), most=2)
    assert [(m.text, m.true, m.predicted, m.place) for m in mistakes] == [
        ("d", "no", "yes", "4"),
        ("a", "yes", "no", "1"),
    ]
    assert mistakes[0].confidence == pytest.approx(0.99)


def test_excerpt_keeps_start_and_end():
    short = excerpt("a" * 500 + "b" * 500, 30)
    assert short.startswith("a" * 20)
    assert short.endswith("b" * 10)
    assert excerpt("short") == "short"


@pytest.mark.slow
@pytest.mark.parametrize(
    "plot",
    [
        lambda: plots.learning_curves([], "accuracy"),
        lambda: plots.learning_curves([{"train_loss": 1.0}, {"train_loss": None, "loss": 2.0}]),
        lambda: plots.schedule({"a": [0.0, 0.1], "b": []}, 1),
        lambda: plots.methods({"a": Interval(1.2, 1.1, 1.3), "b": Interval(1.0, 0.9, 1.1)}, "mae"),
        lambda: plots.confusion(np.zeros((2, 2), dtype=int), ["$", "\\"]),
        lambda: plots.reliability({"none": reliability(np.zeros((0, 2)), np.zeros(0, dtype=int))}),
        lambda: plots.lr_find([1e-5, 1e-4, 1e-3], [3.0, 2.0, 9.0], 1e-4),
    ],
)
def test_plots_are_whole_svg_and_png_whatever_is_missing(plot, tmp_path):
    drawn = plot()
    ElementTree.fromstring(drawn.svg())
    assert drawn.svg() == plot().svg()
    drawn.save(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_best_method_is_drawn_on_top_also_where_less_is_better():
    alt = plots.methods({"a": Interval(1.2, 1.1, 1.3), "b": Interval(1.0, 0.9, 1.1)}, "mae").alt
    assert alt.index("b 1") < alt.index("a 1.2")


def test_a_legend_names_models_without_their_folders_where_they_differ():
    names = [
        "linear",
        "no-adapt@a/b/deep",
        "features@a/forward+a/backward",
        "ulmfit@a/x",
        "ulmfit@b/x",
        "elmo@elmo:c/d",
    ]
    shown = plots.legend_names(names)
    assert list(shown.values()) == [
        "linear",
        "no-adapt@deep",
        "features@forward+backward",
        "ulmfit@a/x",
        "ulmfit@b/x",
        "elmo@d",
    ]


def test_svg_takes_the_pages_colours():
    svg = plots.methods({"a": Interval(0.5, 0.4, 0.6)}, "accuracy").svg()
    assert "var(--ink, #1c2128)" in svg
    assert "var(--series-1, #2563a8)" in svg


RUN = {
    "stage": "finetune",
    "name": "sentiment",
    "language": "en",
    "base": {
        "name": "en-ulmfit",
        "stage": "pretrain",
        "tokens_seen": 123_456_789,
        "data": {"source": "enwiki"},
    },
    "data": {"texts": 100, "sha256": "4f2a"},
    "tokens_seen": 1_000_000,
    "seconds": 90.0,
    "recipe": "ulmfit",
    "command": "textgraft finetune train.csv",
    "seeds": 3,
    "settings": {"seed": 0, "clip": None},
    "test_n": 5000,
    "methods": {
        "ulmfit": {"accuracy": {"mean": 0.883, "low": 0.874, "high": 0.892}, "minutes": 7.25, "peak_mb": 900},
        "linear": {
            "accuracy": {"mean": 0.734, "low": 0.715, "high": 0.751},
            "minutes": None,
            "peak_mb": None,
        },
    },
    "metrics": {"macro_f1": 0.88, "log_loss": None},
    "held_out": {"before": {"perplexity": 90.0}, "after": {"perplexity": 60.0}},
    "calibration": {"ece": 0.021},
    "licence": "CC BY-SA 3.0",
    "versions": {"torch": "2.13.0"},
}


def test_model_card_tells_what_run_json_says():
    card = model_card(RUN)
    for expected in (
        "# sentiment",
        "`en-ulmfit` (pretrain, 123,456,789 tokens seen)",
        "| ulmfit | 88.3 % [87.4, 89.2] | 7.2 | 900 |",
        "| linear | 73.4 % [71.5, 75.1] |  |  |",
        "5,000 held-out texts",
        "macro F1: 88.0 %",
        "held-out perplexity: 60 (before: 90)",
        "calibration, ece: 0.021",
        "textgraft finetune train.csv",
        "time: 1.5 minutes",
        "CC BY-SA 3.0",
        "## Limits",
    ):
        assert expected in card
    assert "log loss" not in card
    assert "clip" not in card


def test_model_card_of_nothing_makes_nothing_up():
    card = model_card({})
    assert "## Results" not in card
    assert "## Training" not in card
    assert not re.search(r"\d", card)
    assert "Not stated" in card


def test_model_card_keeps_user_text_from_being_markup():
    card = model_card({"name": "a|b\n# <script>", "methods": {"x|y\nz": {"accuracy": {"mean": 0.5}}}, "command": "```"})
    assert "# a\\|b # &lt;script&gt;" in card
    assert "| x\\|y z | 50.0 % |" in card
    assert card.count("```") == 2
