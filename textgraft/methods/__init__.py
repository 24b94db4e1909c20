"""Ways to a classifier from a few labels, each as one small class that `compare` can put beside the others."""

from textgraft.methods.base import POOL_AT_LEAST, Answers, Method, MethodOptions
from textgraft.methods.counting import FastText, Linear, Lsa, SelfTraining, Vectors
from textgraft.methods.default import Default
from textgraft.methods.language import Frozen, NoAdapt, Scratch, Ulmfit

METHODS: dict[str, type[Method]] = {
    "linear": Linear,
    "lsa": Lsa,
    "vectors": Vectors,
    "self-trained": SelfTraining,
    "fasttext": FastText,
    "scratch": Scratch,
    "frozen": Frozen,
    "no-adapt": NoAdapt,
    "ulmfit": Ulmfit,
    "default": Default,
}
"""By name, the quick ones first."""

__all__ = ["METHODS", "POOL_AT_LEAST", "Answers", "Method", "MethodOptions"]
