"""Write flair/: language models of tiny random weights as Flair saves them, and what Flair makes of sentences.

Run once, where Flair 0.15.1 can be imported (it wants transformers below 5), from the project's root:

    python tests/parity/make_flair_fixture.py

The models: `forward.pt`; `backward.pt` with two layers and a projection; `old.pt`, in the format of PyTorch before 1.6,
in which the published files are; `bare.pt`, whose decoder FlairEmbeddings threw away. `expected.safetensors` holds, by
model, the vectors of each sentence's words, with two sizes of chunks; the pooled ones of two batches one after the
other; and a text's logits, its loss and the gradients of all weights (dropout 0).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FOLDER = Path(__file__).with_name("flair")
CHARACTERS = " \nabcdefghijklmnopqrstuvwxyzABIP.,'ก"
SENTENCES: list[list[str]] = [
    ["Paris", "is", "a", "big", "town", "."],
    ["I", "saw", "Paris", ",", "big", "Paris", "!"],
    ["ก", "กา", "xyz", "été", "\U0001f600"],
    ["a"],
    [f"{'word' * (i % 3)}{chr(97 + i % 26)}" for i in range(90)],
]
BATCHES = [SENTENCES[:2], SENTENCES[1:4]]
TEXT = "\nBig Paris is a town,\nbig Ibiza's not. "
MODELS: dict[str, dict[str, Any]] = {
    "forward": {"is_forward_lm": True, "hidden_size": 6, "nlayers": 1, "embedding_size": 4},
    "backward": {"is_forward_lm": False, "hidden_size": 7, "nlayers": 2, "embedding_size": 3, "nout": 5},
    "old": {"is_forward_lm": False, "hidden_size": 5, "nlayers": 1, "embedding_size": 4},
    "bare": {"is_forward_lm": True, "hidden_size": 4, "nlayers": 1, "embedding_size": 5},
}
CHUNKS = (512, 16)
POOLINGS = ("min", "max", "mean")


def in_reading_order(text: str, model: str) -> str:
    return text if MODELS[model]["is_forward_lm"] else text[::-1]


def main() -> None:
    import flair
    from flair.data import Dictionary, Sentence
    from flair.embeddings import FlairEmbeddings, PooledFlairEmbeddings
    from flair.models import LanguageModel
    from safetensors.torch import save_file

    flair.device = torch.device("cpu")
    torch.manual_seed(0)
    dictionary = Dictionary()
    for character in CHARACTERS:
        dictionary.add_item(character)
    tensors: dict[str, Tensor] = {}
    FOLDER.mkdir(exist_ok=True)
    for name, shape in MODELS.items():
        path = FOLDER / f"{name}.pt"
        model = LanguageModel(dictionary, dropout=0.0, **shape)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(-0.8, 0.8)
        model.save(path)
        if name == "old":
            content = torch.load(path, weights_only=False)
            torch.save(content, path, pickle_protocol=4, _use_new_zipfile_serialization=False)
        tensors |= {f"{name}.text.{key}": value for key, value in of_text(model, name).items()}
        for size in CHUNKS:
            embeddings = FlairEmbeddings(str(path), chars_per_chunk=size)
            sentences = [Sentence(words) for words in SENTENCES]
            embeddings.embed(sentences)
            found = [torch.stack([t.get_embedding() for t in s]) for s in sentences]
            tensors |= {f"{name}.{size}.{i}": vectors for i, vectors in enumerate(found)}
        for pooling in POOLINGS:
            pooled = PooledFlairEmbeddings(embeddings, pooling=pooling)
            pooled.eval()
            for number, batch in enumerate(BATCHES):
                sentences = [Sentence(words) for words in batch]
                pooled.embed(sentences)
                for i, sentence in enumerate(sentences):
                    tensors[f"{name}.{pooling}.{number}.{i}"] = torch.stack([t.get_embedding() for t in sentence])
        if name == "bare":
            embeddings.lm.save(path)
    save_file(
        {key: value.detach().contiguous().clone() for key, value in tensors.items()}, FOLDER / "expected.safetensors"
    )
    print(f"{FOLDER}: {sum(path.stat().st_size for path in FOLDER.iterdir()) / 1000:.0f} kB")


def of_text(model: Any, name: str) -> dict[str, Tensor]:
    """Logits of what follows in reading order, the mean cross entropy, and gradients under Flair's names."""
    ids = torch.tensor(model.dictionary.get_idx_for_items(list(in_reading_order(TEXT, name))))[:, None]
    model.train()
    logits, _, _ = model(ids[:-1], model.init_hidden(1))
    loss = torch.nn.functional.cross_entropy(logits[:, 0], ids[1:, 0])
    model.zero_grad()
    loss.backward()
    gradients = {f"grad.{n}": p.grad for n, p in model.named_parameters()}
    return {"logits": logits[:, 0], "loss": loss, **gradients}


if __name__ == "__main__":
    main()
