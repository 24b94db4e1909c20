"""Fine-tuned models as ONNX graphs, which run without torch."""
