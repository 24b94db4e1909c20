"""textgraft: graft a task onto a pretrained language model."""

__version__ = "0.1.0"
