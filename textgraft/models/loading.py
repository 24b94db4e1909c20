"""Any network by its name: a folder of ours, one that ships, or a model of another program."""

from __future__ import annotations

from pathlib import Path

from textgraft.conversion import hub
from textgraft.models import artifact, model_folder
from textgraft.models.artifact import Artifact
from textgraft.word_embeddings.stack import Stack


def load(name: str | Path) -> Artifact:
    """The artifact at a path, or one that ships by its name; weights in float32, the model in eval mode.

    `hf:FOLDER` and `hf:NAME` are models of the transformers library, `tf:FOLDER` is a TensorFlow checkpoint of BERT or
    GPT-2, `elmo:FOLDER` a published ELMo (conversion.hub). A tagger over a stack comes with its sources. Raises
    UserError for a missing, truncated, altered or future file, and lists weights that do not fit.
    """
    if model_folder.is_foreign(name):
        return hub.load(str(name))
    folder = model_folder.find(name)
    loaded = artifact.load(folder)
    described = model_folder.read_config(folder).get("stack")
    if described is not None:
        loaded.stack = Stack.load(folder, described)
    return loaded
