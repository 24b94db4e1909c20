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
from textgraft.models.inference import embed_sequences
from textgraft.nn.layer_aggregation import LAST, LAYER_AGGREGATIONS, new_layer_aggregation
from textgraft.nn.pooling import POOLINGS, pooled_dim
from textgraft.tasks import estimator_parameters as parameters
from textgraft.tasks.classification.estimator_input import validate_texts

PARAMETERS: Mapping[str, parameters.Rule] = {
    "model": parameters.optional(parameters.name),
    "pooling": parameters.one_of(POOLINGS),
    "layers": parameters.one_of(LAYER_AGGREGATIONS),
    "max_tokens": parameters.integer(1),
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
    pooling : {"mean", "max", "last", "concat"}, default="mean"
        Pooling over the tokens; "concat" is all three (Howard & Ruder 2018, §3.3).
    layers : str, default="last"
        The encoder layers to use (nn.layer_aggregation.LAYER_AGGREGATIONS).
    max_tokens : int, default=512
        Length in tokens that longer texts are cut to.
    precision : {"auto", "fp32", "bf16"}, default="auto"
        Precision of the encoder.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        pooling: str = "mean",
        layers: str = LAST,
        max_tokens: int = 512,
        precision: str = "auto",
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.layers = layers
        self.max_tokens = max_tokens
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
        aggregation = new_layer_aggregation(self.layers, self.artifact_.model.encoder.widths)
        self._n_features_out = pooled_dim(self.pooling, aggregation.output_dim)
        return self

    def transform(self, X: Iterable[str]) -> np.ndarray:
        """(N, D) float32 vectors, or (N, 3 D) with pooling "concat"."""
        check_is_fitted(self)
        texts = validate_texts(X)
        if not texts:
            return np.zeros((0, self._n_features_out), dtype=np.float32)
        tokenizer = self.artifact_.tokenizer
        sequences, _ = self.artifact_.encoded(texts, self.max_tokens)
        model, options = self.artifact_.model, (tokenizer.pad_id, self.pooling, self.precision)
        return embed_sequences(model, sequences, *options, layers=self.layers)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        return tags
