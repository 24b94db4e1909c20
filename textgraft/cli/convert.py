"""textgraft convert: models of other libraries into textgraft's format, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textgraft.cli import options as o
from textgraft.cli.console import print_json
from textgraft.cli.output_files import validate_writable


def convert(
    model: Annotated[
        str,
        typer.Argument(
            help="hf:FOLDER, hf:NAME, tf:FOLDER, elmo:FOLDER, flair:FILE, a folder of a model, or a bundled model."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder (for flair the file) to write; must not exist.")],
    to: Annotated[
        str,
        typer.Option("--to", help="The format to write: textgraft, huggingface, sentence-transformers, elmo or flair."),
    ] = "textgraft",
    half: Annotated[bool, typer.Option("--half", help="Store the weights of a textgraft model as float16.")] = False,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Convert a model of the Hugging Face transformers library to textgraft, or back.

    These are BERT, DistilBERT, RoBERTa, XLM-R, CamemBERT, MPNet, ModernBERT, GPT, GPT-2, Llama, Mistral, Qwen, SmolLM,
    and with the extra "transformers" any other encoder of that library.

    --to huggingface writes a classifier for AutoModelForSequenceClassification where the library has such a head: one
    layer on BERT's pooler, for example. Its logits are divided by the classifier's temperature.

    --to sentence-transformers writes the encoder, with the vectors that embed makes by it. Of a classifier that is one
    linear layer on these vectors, the layer is beside it as parameters of scikit-learn's LogisticRegression
    (classifier.json, classifier.safetensors; README.md has the lines that use them).

    tf:FOLDER is a TensorFlow checkpoint of Google's BERT, OpenAI's GPT-2 or a Transformer-XL, elmo:FOLDER the
    options.json and weights.hdf5 of a published ELMo, flair:FILE a character language model as Flair saves it.
    """
    from typing import cast

    from textgraft.conversion.convert import Format, convert

    validate_writable(out)
    written = convert(model, out, to=cast(Format, to), half=half, overwrite=overwrite)
    if as_json:
        print_json({"out": written, "format": to})
    else:
        print(f"Written: {written}")
