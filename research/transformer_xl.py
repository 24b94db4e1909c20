"""What Transformer-XL's memory buys: `python research/transformer_xl.py`, under two minutes on one core.

Perplexity of one and the same model with and without a memory, on held-out text in short windows: a small one trained
here for `--seconds` on the demo's reviews, or `--model FOLDER --text FILES`. And processor time for each token of text,
evaluated in segments with a memory, beside a window that moves one token at a time over a Transformer without one (a
GPT of the same shape): random weights, both look at `--lengths` positions for every token (Dai et al. 2019, §4.6 and
table 9). Table on the screen; transformer-xl.json and .svg in research/results/.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from textgraft.core.files import write_atomically
from textgraft.data.batch import Batch
from textgraft.data.readers import read_texts
from textgraft.data.streams.base import LanguageModelStream
from textgraft.data.streams.shards import Corpus
from textgraft.models import loading
from textgraft.models.model import Model, build
from textgraft.tasks.language_modeling.adapt import held_out
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.loop import Run
from textgraft.training.perplexity import language_model_validator
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

HERE = Path(__file__).parent
WINDOW, MEMORIES = 32, (0, 32, 64, 128)
"""Tokens of a window in training and evaluation, and how many before it are remembered."""
SHAPE = {"embedding_dim": 128, "num_layers": 4, "num_heads": 4}
HEAD = {"name": "language_model", "output_dropout": 0.0, "alpha": 0.0, "beta": 0.0}


@dataclass(frozen=True)
class Speed:
    """Milliseconds of processor time for a token at an attention length, in segments and by a sliding window."""

    length: int
    with_memory: float
    sliding: float

    @property
    def ratio(self) -> float:
        return self.sliding / self.with_memory


def model_of(name: str, vocab_size: int, **settings: Any) -> Model:
    """A language model with random weights."""
    torch.manual_seed(0)
    no_dropout = dict.fromkeys(("embedding_dropout", "hidden_dropout", "attention_dropout"), 0.0)
    encoder = {"name": name, "vocab_size": vocab_size, **SHAPE, **no_dropout, **settings}
    return build({"encoder": encoder, "head": {**HEAD, "vocab_size": vocab_size, "input_dim": SHAPE["embedding_dim"]}})


def _batch(ids: Tensor, targets: Tensor | None = None) -> Batch:
    return Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool), targets=targets)


@torch.no_grad()
def in_segments(
    model: Model, ids: Tensor, length: int, state: Any = None, *, steps: int | None = None
) -> tuple[Tensor, Any]:
    """ids (rows, N + 1) -> (rows, N) log probabilities of each next token, `length` at a time, and the last memory."""
    head: Any = model.head
    found = []
    stop = ids.shape[1] - 1 if steps is None else min(ids.shape[1] - 1, steps * length)
    for first in range(0, stop, length):
        last = min(first + length, stop)
        batch = _batch(ids[:, first:last], ids[:, first + 1 : last + 1])
        encoded = model.encoder(batch, state)
        state = encoded.state
        found.append(head.target_log_probs(encoded, batch))
    return torch.cat(found, dim=1), state


@torch.no_grad()
def by_sliding(model: Model, ids: Tensor, length: int) -> Tensor:
    """ids (rows, N + 1) -> (rows, N - length + 1) log probabilities, each from the `length` tokens before it alone."""
    head: Any = model.head
    found = []
    for last in range(length, ids.shape[1]):
        log_p = head.next_logits(model.encoder(_batch(ids[:, last - length : last]))).log_softmax(dim=1)
        found.append(log_p.gather(1, ids[:, last : last + 1]))
    return torch.cat(found, dim=1)


def seconds_of(work: Callable[[], Any], rounds: int) -> float:
    """Processor seconds of the median of some rounds; one before them is not counted."""
    work()
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return median(times)


def speed(length: int, *, rows: int = 4, rounds: int = 3, vocab_size: int = 1000) -> Speed:
    """Both ways at one attention length: `same_length` lets every position of a segment look at as many."""
    ids = torch.randint(vocab_size, (rows, 2 * length + 1), generator=torch.Generator().manual_seed(0))
    inner = 4 * SHAPE["embedding_dim"]
    ours = model_of("transformer_xl", vocab_size, hidden_dim=inner, memory_length=length, same_length=True).eval()
    _, memory = in_segments(ours, ids, length, steps=1)
    segment = seconds_of(lambda: in_segments(ours, ids[:, length:], length, memory), rounds)
    plain = model_of("gpt", vocab_size, max_length=length).eval()
    one = seconds_of(lambda: by_sliding(plain, ids[:, : length + 1], length), rounds)
    return Speed(length, 1000 * segment / (rows * length), 1000 * one / rows)


def perplexities(model: Model, held: Corpus, memories: Sequence[int], *, window: int = WINDOW) -> dict[int, float]:
    """The perplexity of the same weights for each length of the memory, in windows of so many tokens."""
    encoder: Any = model.encoder
    before, found = encoder.config, {}
    for length in memories:
        encoder.config = replace(before, eval_memory_length=length)
        with torch.no_grad():
            found[length] = language_model_validator(held, rows=8, window=window)(model.eval())["perplexity"]
    encoder.config = before
    return found


def trained_here(seconds: float) -> tuple[Model, Corpus]:
    """A small Transformer-XL after so many seconds on the demo's reviews, and reviews that it has not read."""
    with lzma.open(HERE.parent / "demo" / "data" / "pool.txt.xz", "rt", encoding="utf-8") as lines:
        texts = [line.strip() for line in lines]
    tokenizer = Tokenizer.train(texts[:300], kind="subword", vocab_size=1000)
    train, held = held_out(texts[300:], tokenizer)
    shape = {"hidden_dim": 4 * SHAPE["embedding_dim"], "memory_length": 64}
    model = model_of("transformer_xl", tokenizer.vocab_size, **shape)
    stream = LanguageModelStream(train, rows=16, bptt=WINDOW)
    settings = Settings(precision="fp32", clip=0.25, minutes=seconds / 60, device="cpu")
    for _ in Run(model, [Phase("all", epochs=1, lr=0.001, schedule="cosine", warmup=0.05)], stream, settings).steps():
        pass
    return model, held


def given(folder: str, files: list[str]) -> tuple[Model, Corpus]:
    """A trained model and text that it has not read."""
    loaded, texts = loading.load_network(folder), list(read_texts(files))
    ids = loaded.tokenizer.encode_batch(texts)
    words, characters = sum(len(t.split()) for t in texts), sum(map(len, texts))
    return loaded.model, Corpus.from_ids(ids, loaded.tokenizer, words=words, characters=characters)


def table(scores: dict[int, float], speeds: Sequence[Speed]) -> str:
    """Both results as text; each perplexity beside that without a memory."""
    without = scores[min(scores)]
    lines = [f"{'memory':>8}{'perplexity':>12}{'of none':>10}"]
    lines += [f"{length:>8}{value:>12.2f}{value / without:>10.3f}" for length, value in sorted(scores.items())]
    lines += ["", f"{'looks at':>8}{'in segments':>16}{'sliding':>16}{'ratio':>8}"]
    lines += [f"{s.length:>8}{s.with_memory:>10.4f} ms/tok{s.sliding:>9.2f} ms/tok{s.ratio:>8.0f}" for s in speeds]
    return "\n".join(lines)


def slope(speeds: Sequence[Speed]) -> float:
    """The power of the attention length with which the ratio grows: least squares in logarithms."""
    x, y = ([math.log(value) for value in column] for column in zip(*((s.length, s.ratio) for s in speeds)))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)


def draw(scores: dict[int, float], speeds: Sequence[Speed], path: Path) -> None:
    from matplotlib.figure import Figure

    from textgraft.report.plots import Plot

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(list(scores), list(scores.values()), marker="o")
    left.set(title="The same weights", xlabel="memory (tokens)", ylabel="perplexity")
    right.plot([s.length for s in speeds], [s.ratio for s in speeds], marker="o")
    right.set(
        title="A sliding window's time over ours", xlabel="attention length (tokens)", ylabel="times", ylim=(0, None)
    )
    Plot(figure, "Perplexity against the length of the memory; times faster against the attention length.").save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")], default=[100, 200, 400, 800])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40.0, help="how long to train")
    parser.add_argument("--model", help="a Transformer-XL language model instead")
    parser.add_argument("--text", nargs="+", help="text that this one has not read")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    if bool(arguments.model) != bool(arguments.text):
        parser.error("--model and --text go together")
    torch.set_num_threads(arguments.threads)
    speeds = []
    for length in arguments.lengths:
        speeds.append(speed(length, rounds=arguments.rounds))
        print(f"  {length}: {speeds[-1].ratio:.0f} times", file=sys.stderr)
    model, held = given(arguments.model, arguments.text) if arguments.model else trained_here(arguments.seconds)
    scores = perplexities(model, held, MEMORIES)
    print(table(scores, speeds))
    results = {"perplexity": scores, "speed": [{**asdict(s), "ratio": s.ratio} for s in speeds]}
    results |= {"held_out_tokens": held.num_tokens, "window": WINDOW, "threads": arguments.threads}
    if len(speeds) > 1:
        results["ratio_grows_with_length_to_the"] = slope(speeds)
        print(f"\nThe ratio grows with the length to the power of {slope(speeds):.2f}.")
    write_atomically(arguments.out / "transformer-xl.json", json.dumps(results, indent=1).encode())
    draw(scores, speeds, arguments.out / "transformer-xl.svg")


if __name__ == "__main__":
    main()
