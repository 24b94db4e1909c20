"""The linear layer of a classifier for scikit-learn, beside a folder of sentence-transformers: JSON and safetensors.

The layer is in the shape of LogisticRegression (OneVsRestClassifier for several labels, LinearRegression for a number),
so that README.md can rebuild the estimator in a few lines. There is no pickle, which could run code and which other
versions of the library may not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save as to_safetensors
from torch import nn

from textgraft.data.examples import TargetKind
from textgraft.heads.classification import POOLED, ClassificationHead
from textgraft.models.artifact import Artifact
from textgraft.models.model_folder import to_json
from textgraft.models.sentence_embedding import SentenceEmbedding
from textgraft.nn.dense import Dense
from textgraft.nn.layer_aggregation import LAST

ABOUT, WEIGHTS = "classifier.json", "classifier.safetensors"
POOLED_MODULES = 2
"""The encoder and the pooling, the first two steps of a folder."""
Layer = tuple[NDArray[np.float64], NDArray[np.float64]]
"""coef and intercept, in scikit-learn's shapes."""


@dataclass(frozen=True)
class Estimator:
    """An estimator of scikit-learn for a kind of target.

    Attributes:
        imports: Lines that import it.
        name: Its class.
        fill: Lines that fill it with `weights` and `about`.
        layer: Its parameters, from weights and biases of the logits or standardised value.
    """

    imports: str
    name: str
    fill: str
    layer: Callable[[NDArray, NDArray, Artifact], Layer]


def _classes(weight: NDArray, bias: NDArray, source: Artifact) -> Layer:
    """For two classes one row, the difference of both: a sigmoid of it is the softmax."""
    return (weight[1:] - weight[:1], bias[1:] - bias[:1]) if len(weight) == 2 else (weight, bias)


def _labels(weight: NDArray, bias: NDArray, source: Artifact) -> Layer:
    return weight, bias


def _value(weight: NDArray, bias: NDArray, source: Artifact) -> Layer:
    """In the unit of the labels, where the head has the standardised value."""
    assert source.labels is not None
    return weight[0] * source.labels.std, bias * source.labels.std + source.labels.mean


ESTIMATORS: Mapping[TargetKind, Estimator] = {
    "single": Estimator(
        "from sklearn.linear_model import LogisticRegression",
        "LogisticRegression",
        """\
estimator = LogisticRegression()
estimator.classes_ = np.array(about["classes"])
estimator.coef_ = weights["coef"] / about["temperature"]
estimator.intercept_ = weights["intercept"] / about["temperature"]
""",
        _classes,
    ),
    "multi": Estimator(
        """\
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import LabelBinarizer""",
        "OneVsRestClassifier",
        """\
estimator = OneVsRestClassifier(LogisticRegression())
estimator.label_binarizer_ = LabelBinarizer().fit(np.tri(len(about["classes"]), dtype=int))
estimator.estimators_ = [LogisticRegression() for _ in about["classes"]]
for one, coef, intercept in zip(estimator.estimators_, weights["coef"], weights["intercept"]):
    one.classes_ = np.array([0, 1])
    one.coef_, one.intercept_ = coef[None] / about["temperature"], intercept[None] / about["temperature"]
""",
        _labels,
    ),
    "numeric": Estimator(
        "from sklearn.linear_model import LinearRegression",
        "LinearRegression",
        """\
estimator = LinearRegression()
estimator.coef_, estimator.intercept_ = weights["coef"], weights["intercept"][0]
""",
        _value,
    ),
}
"""By kind of target; a classifier of another kind has no such layer."""


def embedding_of(source: Artifact) -> SentenceEmbedding:
    """How the folder makes vectors: as the model describes itself, else as its classifier does, else by their mean."""
    head = source.model.head
    if source.embedding is not None or not isinstance(head, ClassificationHead) or head.config.pooling == POOLED:
        return source.embedding or SentenceEmbedding()
    dense = tuple(layer for layer in head.dense if isinstance(layer, Dense))
    return SentenceEmbedding(head.config.pooling, head.config.normalize, dense)


def reason_against(source: Artifact, embedding: SentenceEmbedding) -> str | None:
    """Why the head of a classifier is no linear layer on the vectors of `embedding`; None if it is one."""
    head = source.model.head
    if not isinstance(head, ClassificationHead):
        return "it scores options, and is no layer on the vector of one text"
    config = head.config
    reasons = {
        "it is for pairs of texts": config.both_orders or source.run.get("reads", "texts") != "texts",
        f"it takes the layers '{config.layer_aggregation}'": config.layer_aggregation != LAST,
        "it takes the embedding layer too": bool(config.words_dim),
        "it normalises batches": config.batch_norm,
        "it has a hidden layer": bool(config.hidden_dim),
        f"its pooling is '{config.pooling}', and that of the vectors '{embedding.pooling}'": (
            config.pooling != embedding.pooling
        ),
        "its dense layers or scaling to length 1 are not those of the vectors": not _begins(head, embedding),
        "it pools the prompt, and the vectors leave it out": bool(embedding.prompt()) and not embedding.pools_prompt,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _begins(head: ClassificationHead, embedding: SentenceEmbedding) -> bool:
    """True if what is under the last layer is the beginning of the embedding's steps, or all of them."""
    if not head.dense and not head.config.normalize:
        return True
    same = len(head.dense) == len(embedding.dense) and all(
        torch.equal(ours, theirs)
        for one, other in zip(head.dense, embedding.dense, strict=True)
        for ours, theirs in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )
    return same and head.config.normalize <= embedding.normalize


def files(source: Artifact, embedding: SentenceEmbedding) -> dict[str, bytes]:
    """The layer's two files by name, for a classifier that has one (`reason_against`)."""
    head, labels = source.model.head, source.labels
    assert isinstance(head, ClassificationHead)
    assert labels is not None
    last = head.layers[-1]
    assert isinstance(last, nn.Linear)
    weight = last.weight.detach().double().numpy()
    bias = np.zeros(len(weight)) if last.bias is None else last.bias.detach().double().numpy()
    estimator = ESTIMATORS[labels.kind]
    coef, intercept = estimator.layer(weight, bias, source)
    limit = source.model.encoder.max_length or source.run["max_tokens"]
    about: dict[str, Any] = {
        "estimator": estimator.name,
        "kind": labels.kind,
        "classes": list(labels.names),
        "coef": list(coef.shape),
        "intercept": list(intercept.shape),
        "temperature": source.run.get("temperature") or 1.0,
        "modules": POOLED_MODULES + len(head.dense) + head.config.normalize,
        "max_tokens": min(source.run["max_tokens"], limit),
    }
    arrays = {"coef": np.ascontiguousarray(coef), "intercept": np.ascontiguousarray(intercept)}
    usage = _usage(estimator, about, POOLED_MODULES + len(embedding.dense) + embedding.normalize)
    return {ABOUT: to_json(about), WEIGHTS: to_safetensors(arrays), "README.md": usage.encode()}


def _usage(estimator: Estimator, about: Mapping[str, Any], modules: int) -> str:
    """A section of README.md that rebuilds the estimator."""
    cut = (
        f"del encoder[{about['modules']}:]  # the layer takes what comes before\n" if about["modules"] < modules else ""
    )
    method = "predict" if about["kind"] == "numeric" else "predict_proba"
    return f"""
## With sentence-transformers and scikit-learn

`{ABOUT}` describes the classifier's linear layer, and `{WEIGHTS}` has its `coef` and `intercept`.
Run in this folder, this makes an estimator of them. Its predictions are the classifier's for texts of up to
{about["max_tokens"]} tokens; of longer ones the beginning alone counts here.

```python
import json
import numpy as np
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer
{estimator.imports}

with open("{ABOUT}", encoding="utf-8") as file:
    about = json.load(file)
weights = load_file("{WEIGHTS}")
encoder = SentenceTransformer(".")
encoder.max_seq_length = about["max_tokens"]
{cut}{estimator.fill}
print(estimator.{method}(encoder.encode(["A text."])))
```
"""
