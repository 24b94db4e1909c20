"""Encoders and heads as ONNX operators."""
