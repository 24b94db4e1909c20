"""Classifiers as ONNX graphs, which run without torch."""
