"""textgraft: graft a task onto a pretrained language model.

The verbs of the command line are functions of the same names here, imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "pretrain": "textgraft.stages.pretrain",
    "tokenize": "textgraft.stages.tokenize",
    "adapt": "textgraft.stages.adapt",
    "finetune": "textgraft.stages.finetune",
    "FinetuneOptions": "textgraft.stages.finetune",
    "distil": "textgraft.stages.distil",
    "DistilOptions": "textgraft.stages.distil_options",
    "compare": "textgraft.stages.compare",
    "MethodOptions": "textgraft.methods",
    "inspect_transfer": "textgraft.stages.transfer",
    "TransferOptions": "textgraft.stages.transfer",
    "inspect_words": "textgraft.stages.word_contexts",
    "WordOptions": "textgraft.stages.word_contexts",
    "inspect_geometry": "textgraft.stages.geometry",
    "GeometryOptions": "textgraft.stages.geometry",
    "inspect_weights": "textgraft.stages.layer_weights",
    "inspect_readouts": "textgraft.stages.readouts",
    "ReadoutOptions": "textgraft.stages.readouts",
    "export": "textgraft.onnx.export",
    "serve": "textgraft.serving.server",
    "predict": "textgraft.verbs",
    "evaluate": "textgraft.verbs",
    "explain": "textgraft.explaining",
    "embed": "textgraft.verbs",
    "embed_stream": "textgraft.verbs",
    "read_squad": "textgraft.data.squad",
    "qa_finetune": "textgraft.stages.questions",
    "QAOptions": "textgraft.stages.questions",
    "qa_answer": "textgraft.answering",
    "qa_evaluate": "textgraft.answering",
    "Reader": "textgraft.answering",
    "read_conll": "textgraft.data.conll",
    "tag_finetune": "textgraft.stages.tagging",
    "TagOptions": "textgraft.stages.tagging",
    "Stack": "textgraft.words.stack",
    "Network": "textgraft.stages.stacked_tagging",
    "tag_predict": "textgraft.tagging",
    "tag_evaluate": "textgraft.tagging",
    "Tagger": "textgraft.tagging",
    "train_vectors": "textgraft.vectors.training",
    "VectorOptions": "textgraft.vectors.options",
    "load_vectors": "textgraft.vectors.formats",
    "save_vectors": "textgraft.vectors.formats",
    "convert_vectors": "textgraft.vectors.formats",
    "plot_vectors": "textgraft.report.word_map",
    "WordVectors": "textgraft.vectors.word_vectors",
    "word_vectors": "textgraft.words.contextual",
    "WordMemory": "textgraft.words.memory",
    "read_parallel": "textgraft.data.parallel",
    "cove_train": "textgraft.stages.translation",
    "CoVeOptions": "textgraft.stages.translation",
    "cove_translate": "textgraft.translation",
    "cove_evaluate": "textgraft.translation",
    "cove_align": "textgraft.translation",
    "Translator": "textgraft.translation",
    "convert": "textgraft.foreign.convert",
    "fetch": "textgraft.foreign.fetch",
    "lr_find": "textgraft.stages.rates",
    "schedule": "textgraft.stages.rates",
    "generate": "textgraft.language.generation",
    "stream": "textgraft.language.generation",
    "score": "textgraft.language.generation",
    "GenerateOptions": "textgraft.language.decoding",
    "prompt": "textgraft.language.prompt_tasks",
    "complete": "textgraft.language.prompt_tasks",
    "PromptOptions": "textgraft.language.prompt_tasks",
    "last_words": "textgraft.language.word_prediction",
    "cloze": "textgraft.language.word_prediction",
    "load": "textgraft.classifier",
    "read": "textgraft.data.readers",
    "check": "textgraft.data.check",
    "Tokenizer": "textgraft.text.tokenizer",
    "Settings": "textgraft.training.loop",
    "TextClassifier": "textgraft.estimators",
    "TextEmbedder": "textgraft.estimators",
    "SequenceTagger": "textgraft.sequence_tagger",
    "UserError": "textgraft.errors",
}
__all__ = ["__version__", *_PUBLIC]


def __dir__() -> list[str]:
    """The public names, for completion and help: the module has them only once they are used."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'textgraft' has no attribute '{name}'")
    return getattr(import_module(_PUBLIC[name]), name)
