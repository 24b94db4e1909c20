"""How a model represents a whole text by one vector, where it says so: sentence encoders do.

It belongs to the artifact and not to the encoder: any encoder can have it, from a folder of the sentence-transformers
library (conversion.sentence_transformers) or from textgraft's own config.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.sequences import Direction, prepared_texts
from textgraft.nn.dense import Dense, DenseConfig, dense_configs, dense_layers, projected
from textgraft.nn.pooling import pool, pooled_dim, validate_pooling

KEY = "sentence_embedding"
"""The key in an artifact's config.json, and the prefix of the weights."""
LENGTH = 512
"""Maximum number of tokens where neither the description nor the encoder has one."""


@dataclass(frozen=True)
class SentenceEmbedding:
    """Pooling, dense layers and normalisation, and how texts are prepared.

    Attributes:
        pooling: A name of nn.pooling.POOLINGS, or several joined by +.
        normalize: Vectors have length 1.
        dense: Layers above the pooled vector.
        max_length: Maximum number of tokens, special tokens included; later ones are dropped. None: the encoder's.
        lowercase: Lower-case texts before the tokenizer does what it does.
        prompts: Texts to write before each text, by the name of a purpose, such as "query".
        default_prompt: The name of the prompt that is used where none is asked for.
        pools_prompt: The positions of a prompt are pooled with the text's.
    """

    pooling: str = "mean"
    normalize: bool = False
    dense: tuple[Dense, ...] = field(default=(), compare=False)
    max_length: int | None = None
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    pools_prompt: bool = True

    def __post_init__(self) -> None:
        if wrong := self._of_another_type():
            message = f"this is not the description of a sentence embedding ({', '.join(wrong)})."
            raise UserError(message, where=KEY, remedy="Use the file that came with the model.")
        validate_pooling(self.pooling)
        if self.default_prompt is not None:
            self.prompt(self.default_prompt, exact=True)

    def _of_another_type(self) -> list[str]:
        """Names of the settings whose values are impossible, as in a damaged file."""
        flags = ("normalize", "lowercase", "pools_prompt")
        wrong = [name for name in flags if not isinstance(getattr(self, name), bool)]
        wrong += ["pooling"] * (not isinstance(self.pooling, str))
        wrong += ["default_prompt"] * (not isinstance(self.default_prompt, str | None))
        length = 1 if self.max_length is None else self.max_length
        wrong += ["max_length"] * (isinstance(length, bool) or not isinstance(length, int) or length < 1)
        prompts = self.prompts.items() if isinstance(self.prompts, Mapping) else [(None, None)]
        return wrong + ["prompts"] * any(not isinstance(one, str) for pair in prompts for one in pair)

    @property
    def shapes(self) -> tuple[DenseConfig, ...]:
        """The shapes of the dense layers."""
        return tuple(layer.config for layer in self.dense)

    def output_dim(self, width: int) -> int:
        """Width of the vectors over an encoder of this width."""
        return self.shapes[-1].output_dim if self.dense else pooled_dim(self.pooling, width)

    def limit(self, encoder: int | None) -> int:
        """Maximum number of tokens over an encoder with this one."""
        return min(self.max_length or encoder or LENGTH, encoder or self.max_length or LENGTH)

    def prompt(self, asked: str | None = None, *, exact: bool = False) -> str:
        """The text to write before each text.

        Args:
            asked: The name of a prompt or, where it is none and contains a space or punctuation, the prompt itself;
                empty for none. None: the default prompt, if there is one.
            exact: It is a name.

        Raises:
            UserError: It looks like a name and is not known.
        """
        name = self.default_prompt if asked is None else asked
        if not name:
            return ""
        if name in self.prompts:
            return self.prompts[name]
        if not exact and not name.replace("_", "").replace("-", "").isalnum():
            return name
        known = ", ".join(f"{key} ({text!r})" for key, text in self.prompts.items()) or "none"
        remedy = f"Prompts of this model: {known}. A prompt that is none of them ends in a space or in punctuation."
        raise UserError(f"this model has no prompt '{name}'.", where="prompt", remedy=remedy)

    def prepared(self, texts: Sequence[str], prompt: str | None = None) -> list[str]:
        """Texts as the tokenizer takes them, with the prompt; anything but plain strings, such as pairs, unchanged.

        Raises:
            UserError: As `prompt`.
        """
        return prepared_texts(texts, self.prompt(prompt), lowercase=self.lowercase)

    def __call__(self, hidden: Tensor, mask: Tensor, direction: Direction, skipped: int = 0) -> Tensor:
        """Vectors (B, E) of `hidden` (B, T, D).

        Args:
            hidden: The encoder's top layer.
            mask: The real positions (B, T), padded on the right.
            direction: The encoder's direction.
            skipped: Number of positions of a prompt, which are left out.
        """
        if skipped:
            later = torch.arange(mask.shape[1], device=mask.device) >= skipped
            mask = torch.where((mask & later).any(1, keepdim=True), mask & later, mask)
        pooled = pool(self.pooling, hidden, mask, direction)
        return projected(pooled, [layer.to(pooled.device) for layer in self.dense], normalize=self.normalize)

    def describe(self) -> dict[str, Any]:
        """The settings as JSON values."""
        plain = {name: value for name, value in vars(self).items() if name != "dense"}
        return {**plain, "prompts": dict(self.prompts), "dense": [asdict(shape) for shape in self.shapes]}

    def values(self) -> dict[str, Tensor]:
        """The weights of the dense layers by name."""
        return {
            f"{KEY}.dense.{i}.{name}": value.detach()
            for i, layer in enumerate(self.dense)
            for name, value in layer.state_dict().items()
        }


def sentence_embedding(description: Mapping[str, Any], values: Mapping[str, Tensor], width: int) -> SentenceEmbedding:
    """Build the embedding of a description.

    Args:
        description: As SentenceEmbedding.describe returns it.
        values: Weights by name; those that begin with KEY are taken.
        width: Width of the encoder.

    Raises:
        UserError: A setting is unknown, or weights are missing or of another shape.
    """
    settings = dict(description)
    try:
        shapes = dense_configs(settings.pop("dense", ()))
        embedding = SentenceEmbedding(**settings)
        layers = dense_layers(pooled_dim(embedding.pooling, width), shapes)
        for i, layer in enumerate(layers):
            begin = f"{KEY}.dense.{i}."
            layer.load_state_dict({n.removeprefix(begin): v.float() for n, v in values.items() if n.startswith(begin)})
    except (TypeError, AttributeError) as error:
        raise UserError(f"this is not the description of a sentence embedding ({error}).", where=KEY) from error
    except RuntimeError as error:
        message = f"the weights of the dense layers do not fit their description ({' '.join(str(error).split())})."
        raise UserError(message, where=KEY) from error
    return replace(embedding, dense=tuple(layer.requires_grad_(False).eval() for layer in layers))
