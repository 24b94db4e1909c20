"""The vectors of a saved model as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from textgraft.core.precision import TRAINING_PRECISIONS
from textgraft.models import loading
from textgraft.models.default_models import default_models_for
from textgraft.nn.layer_aggregation import LAST, LAYER_AGGREGATIONS
from textgraft.nn.pooling import POOLINGS
from textgraft.tasks import estimator_parameters as parameters
from textgraft.tasks.classification.estimator_input import validate_texts

PARAMETERS: Mapping[str, parameters.Rule] = {
    "model": parameters.optional(parameters.name),
    "pooling": parameters.optional(parameters.one_of(POOLINGS)),
    "layers": parameters.one_of(LAYER_AGGREGATIONS),
    "max_tokens": parameters.optional(parameters.integer(1)),
    "prompt": parameters.optional(parameters.text),
    "precision": parameters.one_of(TRAINING_PRECISIONS),
}
"""The valid values of each parameter."""


class TextEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer from texts to vectors: the pooled layers of a saved model, fine-tuned or not.

    Nothing is trained: `fit` loads the model.

    Parameters
    ----------
    model : str or Path, default=None
        Name or folder of the model. None is the default model for the script of the texts of `fit`
        (textgraft.models.default_models).
    pooling : {"mean", "max", "last", "concat", "first", "mean_sqrt", "weighted_mean"}, default=None
        Pooling over the tokens; "concat" is the first three (Howard & Ruder 2018, §3.3). None is the vector that the
        model describes, with all that a sentence encoder has above its pooling, and the mean of a model that describes
        none.
    layers : str, default="last"
        The encoder layers to use (nn.layer_aggregation.LAYER_AGGREGATIONS).
    max_tokens : int, default=None
        Length in tokens that longer texts are cut to. None is the model's, or 512.
    prompt : str, default=None
        Name of one of the model's prompts, such as "query", or a text to write before each text.
    precision : {"auto", "fp32", "bf16"}, default="auto"
        Precision of the encoder.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        pooling: str | None = None,
        layers: str = LAST,
        max_tokens: int | None = None,
        prompt: str | None = None,
        precision: str = "auto",
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.layers = layers
        self.max_tokens = max_tokens
        self.prompt = prompt
        self.precision = precision

    def fit(self, X: Iterable[str], y: Any = None) -> Self:
        """Load the model.

        Raises
        ------
        UserError
            A parameter has a wrong type or value, the model is unknown or does not have these layers, or a text is no
            string.
        """
        parameters.validate_parameters(self, PARAMETERS)
        texts = validate_texts(X)
        self.artifact_ = loading.load_network(self.model or default_models_for(texts).alone)
        self._n_features_out = self._embedded([]).shape[1]
        return self

    def transform(self, X: Iterable[str]) -> np.ndarray:
        """(N, D) float32 vectors, or (N, 3 D) with pooling "concat"."""
        check_is_fitted(self)
        return self._embedded(validate_texts(X))

    def _embedded(self, texts: list[str]) -> np.ndarray:
        options: dict[str, Any] = {"max_tokens": self.max_tokens, "prompt": self.prompt, "precision": self.precision}
        return self.artifact_.embed(texts, pooling=self.pooling, layers=self.layers, **options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        return tags
