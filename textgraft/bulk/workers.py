"""What is done with the rows of a block: classified, embedded or tagged. Each worker opens its model once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from textgraft.core.errors import UserError
from textgraft.data.output_rows import four_digits, rounded

if TYPE_CHECKING:
    from textgraft.data.examples import InputKind
    from textgraft.data.text_rows import TextRow
    from textgraft.tasks.classification.predictor import Classifier, Prediction
    from textgraft.tasks.tagging.predictor import Tagger

SPAN = 'text VARCHAR, "start" BIGINT, "end" BIGINT'
WORDS = 'STRUCT(word VARCHAR, "start" BIGINT, "end" BIGINT, tag VARCHAR, probability DOUBLE)[]'
ENTITIES = f'STRUCT("type" VARCHAR, {SPAN}, "first" BIGINT, "last" BIGINT, probability DOUBLE)[]'
LABEL_TYPES = {"numeric": "DOUBLE", "multi": "VARCHAR[]"}
"""DuckDB's types of labels by their kind; others are text."""
SHAPES: Mapping[str, str] = {"texts": "single texts", "pairs": "pairs of texts"}


class Results(NamedTuple):
    """A result for each row, and how many rows are special: `empty`, or `unknown` to the model."""

    rows: list[dict[str, Any]]
    counts: Counter[str]


@dataclass(frozen=True)
class OpenedModel:
    """A model that is ready.

    Attributes:
        process: From rows to a result each.
        types: DuckDB's types of the columns of a result; probabilities in columns of their own.
    """

    process: Callable[[Sequence[TextRow]], Results]
    types: Mapping[str, str]


class TextWorker(Protocol):
    """Work on texts. It is a frozen dataclass of plain values, which go to other processes.

    Attributes:
        verb: The command.
        formats: Formats that its results can be written in; the first is the default.
    """

    verb: ClassVar[str]
    formats: ClassVar[tuple[str, ...]]

    @property
    def model(self) -> str:
        """Name or folder of the model."""
        ...

    @property
    def device(self) -> str:
        """A name of core.device.DEVICES."""
        ...

    def open(self) -> OpenedModel:
        """Open the model. Raises UserError where it cannot be used."""
        ...

    def identity(self) -> dict[str, Any]:
        """Everything besides the model's weights that results depend on."""
        ...


@dataclass(frozen=True)
class PredictWorker:
    """Classification.

    Args:
        model: Name or folder of a classifier.
        abstain_below: Predictions of lower confidence have no label.
        probabilities: Add the probability of every class.
        precision: A name of nn.cpu.precision.
        device: A name of core.device.DEVICES.
    """

    verb: ClassVar[str] = "predict"
    formats: ClassVar[tuple[str, ...]] = ("jsonl", "csv", "parquet")
    model: str
    abstain_below: float = 0.0
    probabilities: bool = False
    precision: str = "auto"
    device: str = "auto"

    def open(self) -> OpenedModel:
        """Open the classifier. Raises UserError for one of questions with options."""
        from textgraft.tasks.classification.predictor import load_classifier

        classifier = load_classifier(self.model, precision=self.precision, device=self.device)
        if classifier.reads not in SHAPES:
            remedy = "Predict the files one by one, each into a file of its own."
            raise UserError("questions with options are not predicted in bulk.", where=self.model, remedy=remedy)
        types = {"label": LABEL_TYPES.get(classifier.labels.kind, "VARCHAR"), "confidence": "DOUBLE"}
        types["known"] = "BOOLEAN"
        if self.probabilities:
            types |= {f"p({name})": "DOUBLE" for name in classifier.labels.names}

        def process(rows: Sequence[TextRow]) -> Results:
            texts = _texts(rows, classifier)
            predictions = list(classifier.predict(texts, abstain_below=self.abstain_below))
            counts = Counter(empty=sum(map(_is_blank, texts)))
            counts["unknown"] = sum(not p.known and not _is_blank(t) for p, t in zip(predictions, texts, strict=True))
            return Results([prediction_row(one, self.probabilities) for one in predictions], counts)

        return OpenedModel(process, types)

    def identity(self) -> dict[str, Any]:
        """Everything besides the model's weights that predictions depend on."""
        return _options(self)


@dataclass(frozen=True)
class EmbedWorker:
    """Vectors of texts; the arguments are those of `textgraft.embed`."""

    verb: ClassVar[str] = "embed"
    formats: ClassVar[tuple[str, ...]] = ("parquet", "jsonl")
    model: str
    pooling: str | None = None
    max_tokens: int | None = None
    layers: str = "last"
    prompt: str | None = None
    device: str = "auto"

    def open(self) -> OpenedModel:
        """Open the model."""
        from textgraft.api import embed_stream
        from textgraft.models.loading import open_models

        opened = open_models(self.model, device=self.device)
        options: dict[str, Any] = {"pooling": self.pooling, "max_tokens": self.max_tokens, "layers": self.layers}

        def process(rows: Sequence[TextRow]) -> Results:
            texts = [row.text for row in rows]
            blocks = embed_stream(opened, texts, prompt=self.prompt, device=self.device, **options)
            vectors = [{"vector": vector} for block in blocks for vector in block]
            return Results(vectors, Counter(empty=sum(map(_is_blank, texts))))

        return OpenedModel(process, {"vector": "FLOAT[]"})

    def identity(self) -> dict[str, Any]:
        """Everything besides the model's weights that vectors depend on."""
        return _options(self)


@dataclass(frozen=True)
class TagWorker:
    """Tags of the words of texts, and entities.

    Args:
        model: Name or folder of a tagger.
        precision: A name of nn.cpu.precision.
    """

    verb: ClassVar[str] = "tag predict"
    formats: ClassVar[tuple[str, ...]] = ("jsonl", "parquet")
    device: ClassVar[str] = "cpu"  # taggers run on the processor
    model: str
    precision: str = "auto"

    def open(self) -> OpenedModel:
        """Open the tagger."""
        from textgraft.tasks.tagging.predictor import Tagger

        tagger = Tagger(self.model, precision=self.precision)
        types = {"words": WORDS} | ({"entities": ENTITIES} if tagger.has_entities else {})
        return OpenedModel(lambda rows: _tagged(tagger, [row.text for row in rows]), types)

    def identity(self) -> dict[str, Any]:
        """Everything besides the model's weights that tags depend on."""
        return _options(self)


def prediction_row(prediction: Prediction, probabilities: bool) -> dict[str, Any]:
    """A prediction as columns of a row, its probabilities as a dictionary if they are wanted."""
    row: dict[str, Any] = {"label": prediction.label, "confidence": four_digits(prediction.confidence)}
    row |= {} if prediction.option is None else {"option": prediction.option}
    row["known"] = prediction.known
    return row | ({"probabilities": rounded(prediction.probabilities)} if probabilities else {})


def _tagged(tagger: Tagger, texts: Sequence[str]) -> Results:
    """Tags of texts, those without a word too."""
    from textgraft.data.tag_spans import from_text

    sentences = [from_text(text) for text in texts]
    cut = 0
    predictions = []
    for prediction, coverage in tagger.stream([sentence for sentence in sentences if sentence.words]):
        predictions.append(prediction.as_json())
        cut += coverage.cut_words
    answers = iter(predictions)
    rows = []
    for sentence in sentences:
        row: dict[str, Any] = next(answers) if sentence.words else {"words": [], "entities": []}
        rows.append({name: row[name] for name in ("words", "entities")[: 1 + tagger.has_entities]})
    return Results(rows, Counter(empty=sum(map(_is_blank, texts)), cut_words=cut))


def _texts(rows: Sequence[TextRow], classifier: Classifier) -> list[str]:
    """Texts or pairs. Raises UserError, with the place, where the classifier was trained on the other."""
    given: InputKind = "pairs" if len(rows[0].text_columns) == 2 else "texts"
    if given != classifier.reads:
        columns = " and ".join(rows[0].text_columns)
        message = f"this model was trained on {SHAPES[classifier.reads]}, and here are {SHAPES[given]} ({columns})."
        option = "text" if given == "pairs" else "text2"
        raise UserError(message, where=rows[0].source, remedy=f"Name the column with {option}=….")
    return [row.text for row in rows]


def _options(worker: Any) -> dict[str, Any]:
    # The device is left out: an unfinished run may go on on another.
    return {name: value for name, value in asdict(worker).items() if name not in ("model", "device")}


def _is_blank(text: str) -> bool:
    return not "".join(text).strip()
