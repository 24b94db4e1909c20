"""Export of fine-tuned models to ONNX, with validation."""
