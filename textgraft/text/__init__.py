"""Text before it is numbers: normalisation, tokenizers, offsets, word segmentation."""
