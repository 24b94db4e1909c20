"""textgraft: graft a task onto a pretrained language model.

The verbs of the command line are functions of the same names here, imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "pretrain": "textgraft.tasks.language_modeling.pretrain",
    "PretrainOptions": "textgraft.tasks.language_modeling.pretrain",
    "StreamedText": "textgraft.tasks.language_modeling.streamed_text",
    "RunContext": "textgraft.core.context",
    "tokenize": "textgraft.tasks.language_modeling.tokenize",
    "adapt": "textgraft.tasks.language_modeling.adapt",
    "adapt_parallel": "textgraft.tasks.language_modeling.adapt_parallel",
    "adapt_streamed": "textgraft.tasks.language_modeling.adapt_streamed",
    "finetune": "textgraft.tasks.classification.finetune",
    "FinetuneOptions": "textgraft.tasks.classification.finetune_options",
    "zero_shot": "textgraft.tasks.classification.zero_shot",
    "distil": "textgraft.distillation.distil",
    "DistilOptions": "textgraft.distillation.options",
    "compare": "textgraft.comparison.compare",
    "MethodOptions": "textgraft.comparison.methods",
    "tune": "textgraft.comparison.tuning",
    "TuneOptions": "textgraft.comparison.tuning",
    "SearchSpace": "textgraft.comparison.search_space",
    "inspect_transfer": "textgraft.experiments.transfer",
    "TransferOptions": "textgraft.experiments.transfer",
    "inspect_words": "textgraft.experiments.word_contexts",
    "WordOptions": "textgraft.experiments.word_contexts",
    "inspect_geometry": "textgraft.experiments.geometry",
    "GeometryOptions": "textgraft.experiments.geometry",
    "inspect_weights": "textgraft.experiments.layer_weights",
    "inspect_layers": "textgraft.experiments.layer_aggregation",
    "NTMOptions": "textgraft.experiments.ntm_training",
    "inspect_ntm": "textgraft.experiments.ntm_training",
    "LayerOptions": "textgraft.experiments.layer_tasks",
    "export": "textgraft.tasks.export",
    "serve": "textgraft.serving.server",
    "predict": "textgraft.api",
    "process_files": "textgraft.bulk.process",
    "BulkOptions": "textgraft.bulk.process",
    "PredictWorker": "textgraft.bulk.workers",
    "EmbedWorker": "textgraft.bulk.workers",
    "TagWorker": "textgraft.bulk.workers",
    "open_engine": "textgraft.engines.registry",
    "evaluate": "textgraft.api",
    "explain": "textgraft.tasks.classification.explaining",
    "embed": "textgraft.api",
    "embed_stream": "textgraft.api",
    "read_squad": "textgraft.data.squad",
    "qa_finetune": "textgraft.tasks.question_answering.finetune",
    "QAOptions": "textgraft.tasks.question_answering.finetune",
    "qa_answer": "textgraft.tasks.question_answering.predictor",
    "qa_evaluate": "textgraft.tasks.question_answering.predictor",
    "QAModel": "textgraft.tasks.question_answering.predictor",
    "read_conll": "textgraft.data.conll",
    "read_tagged": "textgraft.data.tagged",
    "tag_finetune": "textgraft.tasks.tagging.finetune",
    "TagOptions": "textgraft.tasks.tagging.finetune",
    "Stack": "textgraft.word_embeddings.stack",
    "Network": "textgraft.tasks.tagging.stacked",
    "tag_predict": "textgraft.tasks.tagging.predictor",
    "tag_evaluate": "textgraft.tasks.tagging.predictor",
    "Tagger": "textgraft.tasks.tagging.predictor",
    "train_vectors": "textgraft.word_embeddings.training",
    "VectorOptions": "textgraft.word_embeddings.options",
    "load_vectors": "textgraft.word_embeddings.formats",
    "save_vectors": "textgraft.word_embeddings.formats",
    "VectorSource": "textgraft.word_embeddings.formats",
    "convert_vectors": "textgraft.word_embeddings.formats",
    "plot_vectors": "textgraft.word_embeddings.word_map",
    "WordVectors": "textgraft.word_embeddings.word_vectors",
    "word_vectors": "textgraft.word_embeddings.contextual",
    "WordMemory": "textgraft.word_embeddings.pooled_memory",
    "read_parallel": "textgraft.data.parallel",
    "cove_train": "textgraft.tasks.translation.train",
    "CoVeOptions": "textgraft.tasks.translation.train",
    "cove_translate": "textgraft.tasks.translation.predictor",
    "cove_evaluate": "textgraft.tasks.translation.predictor",
    "cove_align": "textgraft.tasks.translation.predictor",
    "Translator": "textgraft.tasks.translation.predictor",
    "convert": "textgraft.conversion.convert",
    "fetch": "textgraft.conversion.fetch",
    "list_models": "textgraft.conversion.list_models",
    "lr_find": "textgraft.tasks.learning_rates",
    "schedule": "textgraft.tasks.learning_rates",
    "generate": "textgraft.generation.generation",
    "stream": "textgraft.generation.generation",
    "score": "textgraft.generation.generation",
    "GenerateOptions": "textgraft.generation.decoding",
    "prompt": "textgraft.generation.prompt_tasks",
    "complete": "textgraft.generation.prompt_tasks",
    "PromptOptions": "textgraft.generation.prompt_tasks",
    "last_words": "textgraft.generation.word_prediction",
    "cloze": "textgraft.generation.word_prediction",
    "load": "textgraft.models.loading",
    "read": "textgraft.data.readers",
    "check": "textgraft.data.checks",
    "Tokenizer": "textgraft.text.tokenizer",
    "Settings": "textgraft.training.settings",
    "TextClassifier": "textgraft.tasks.classification.estimator",
    "TextEmbedder": "textgraft.tasks.classification.embedder",
    "SequenceTagger": "textgraft.tasks.tagging.estimator",
    "UserError": "textgraft.core.errors",
    "DataWarning": "textgraft.core.errors",
}
__all__ = ["__version__", *_PUBLIC]


def __dir__() -> list[str]:
    """The public names and nothing else, for completion and help, before they are imported."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'textgraft' has no attribute '{name}'")
    return getattr(import_module(_PUBLIC[name]), name)
