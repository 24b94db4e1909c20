"""Prove that a refactor changed no result: run the same commands in two checkouts and compare every number.

    python research/same_results.py BEFORE AFTER [--only NAME ...] [--work DIR] [--compare-only] [--numbers-only]

Each check is one command of the real command line (`python -m textgraft ...`), on small made-up data, with a fixed seed
and one thread. Whatever a check reads (a pretrained model, a classifier) is what BEFORE saved, so each check also shows
that folders saved before still open, and a difference shows up in the check that causes it. Checks marked `own` are run
a second time in AFTER on what AFTER saved itself.

Weights have to be equal bit for bit, numbers to the last digit, predictions byte for byte. Not compared: times, memory,
paths, versions, README.md and report.html (prose and pictures of numbers that results.json holds).

What AFTER calls differently belongs into the RENAMED_... tables below. BEFORE's outputs are kept in the work folder, so
a second run only runs AFTER; --compare-only runs nothing and looks again at what is there, as after a change to the
tables. Run it with the project's own interpreter. Exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import random
import re
import shlex
import shutil
import string
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# --- What AFTER calls differently: {"before": "after"} ----------------------------------------------------------------

RENAMED_OPTIONS: dict[str, str] = {
    "--readout": "--layer-aggregation",
    "--readouts": "--layer-aggregations",
    "readouts": "layers",
}
"""Verbs and options of the command line, as whole words: {"--readout": "--layer-aggregation"}."""
RENAMED_NAMES: dict[str, str] = {
    "self-trained": "co-training",
    "blend": "ensemble",
    "inspect readouts": "inspect layers",
}
"""Names of methods, layers and the like, wherever they stand as a whole word: in option values, JSON keys and JSON
strings, recipes, tables of answers: {"self-trained": "co-training", "blend": "ensemble"}."""
RENAMED_KEYS: dict[str, str] = {
    "readout": "layer_aggregation",
    "suits": "recommended_recipe",
    "piece": "subword_pooling",
    "examined": "evaluation_split",
    "least_steps": "min_steps",
    "contrast": "contrastive_temperature",
    "auxiliary": "auxiliary_lm_weight",
}
"""Keys in JSON and TOML files alone: {"readout": "layer_aggregation"}."""
RENAMED_FILES: dict[str, str] = {}
"""Files and folders that a command writes or that ship, by their last name: {"blend.json": "ensemble.json"}."""
RENAMED_TENSORS: dict[str, str] = {"readout.": "layer_aggregation."}
"""Parts of the names of tensors in .safetensors: {"readout.": "layer_aggregation."}."""
RENAMED_IN_RECIPES: dict[str, str] = {
    "rows =": "batch_size =",
    "least_steps =": "min_steps =",
    "contrast =": "contrastive_temperature =",
    "auxiliary =": "auxiliary_lm_weight =",
    "suits =": "recommended_recipe =",
}
"""Text in the recipes that this script writes, replaced as it stands for AFTER: {"clip =": "clip_norm ="}."""

IGNORED_KEYS = {
    *("minutes", "seconds", "once", "peak_mb", "texts_per_second", "tokens_per_second", "speed_ratio", "versions"),
    *("machine", "out", "report", "asked"),
}
"""What may differ between two runs of the same code.

`asked` hashes the names of options: where it changes, runs killed before the refactor are not gone on with after it."""
IGNORED_ENDINGS = ("_minutes", "_seconds", "_mb")
PROSE_KEYS = {"chosen", "about", "verdict", "why", "left_out", "description", "source", "warnings", "notes", "told"}
"""Below these keys wording is free and only the numbers in it are compared."""
INSIDE = r"(?:[^.;]|[.;](?=\S))*"
TIMED = re.compile(rf"{INSIDE}\b(?:times as (?:fast|long)|minutes?|seconds|MB)\b{INSIDE}")
"""Parts of prose that tell of time or memory, which are left out."""
NOT_COMPARED = {".html", ".md", ".svg", ".png"}

# --- Recipes of seconds -----------------------------------------------------------------------------------------------

HEADER = 'name = "{name}"\ndescription = "For tests"\nsource = "none"\n'
LANGUAGE_MODEL = (
    HEADER.replace('source = "none"\n', "")
    + """language = "en"
licence = "Apache-2.0"
validate_every = 100
[tokenizer]
{tokenizer}
[model]
{model}
[head]
{head}
[stage]
rows = 8
bptt = 32
clip = 1.0
[[stage.phases]]
name = "pretrain"
epochs = 1
lr = 0.01
{phase}
"""
)
PRETRAINED: dict[str, tuple[str, str, str, str]] = {
    "lstm": ('kind = "subword"; vocab_size = 200', "embedding_dim = 16; hidden_dim = 24", "", ""),
    "backward": (
        'kind = "subword"; vocab_size = 200',
        'embedding_dim = 16; hidden_dim = 24; direction = "right"',
        "",
        'schedule = "one_cycle"',
    ),
    "qrnn": (
        'kind = "subword"; model = "unigram"; vocab_size = 200',
        'cell = "qrnn"; embedding_dim = 16; hidden_dim = 24',
        'output_layer = "adaptive"',
        "",
    ),
    "bert": (
        'kind = "subword"; model = "wordpiece"; vocab_size = 200',
        'name = "bert"; embedding_dim = 16; num_layers = 4; num_heads = 2; feed_forward_dim = 32; max_length = 64',
        'name = "masked_language_model"; next_sentence = true',
        'optimizer = "muon"; schedule = "wsd"',
    ),
    "gpt": (
        'kind = "subword"; model = "byte_level"; vocab_size = 400',
        'name = "gpt"; embedding_dim = 16; num_layers = 2; num_heads = 2; max_length = 64',
        "bias = false; alpha = 0.0; beta = 0.0",
        'schedule = "linear"; warmup = 0.1',
    ),
    "xl": (
        'kind = "subword"; model = "unigram"; vocab_size = 200',
        'name = "transformer_xl"; embedding_dim = 16; hidden_dim = 32; num_layers = 2; num_heads = 2',
        "alpha = 0.0; beta = 0.0",
        "",
    ),
    "elmo": (
        'kind = "word"; model = "spelling"; vocab_size = 200',
        'name = "elmo"; character_dim = 4; filters = [[1, 4], [3, 12]]; projection_dim = 8; hidden_dim = 10',
        'name = "bidirectional_language_model"; input_dim = 16; output_layer = "sampled"',
        "",
    ),
    "flair": (
        'kind = "character"; vocab_size = 100',
        'name = "flair"; embedding_dim = 12; hidden_dim = 24; truncate = 0',
        'input_dim = 24; tied = false; output_layer = "full"; alpha = 0.0; beta = 0.0',
        "",
    ),
}
"""Of each language model: its tokenizer, its encoder, its head, and how its phase differs."""
QUICK = """
[adapt]
rows = 8
bptt = 35
[[adapt.phases]]
name = "all"
epochs = 1
lr = 0.01
[finetune]
rows = 8
[[finetune.phases]]
name = "head"
epochs = 1
trainable = 1
lr = 0.01
[[finetune.phases]]
name = "all"
epochs = 2
lr = 0.01
"""
TAGS = """
[finetune]
rows = 8
dropout = 0.1
[[finetune.phases]]
name = "all"
epochs = 4
lr = 0.02
"""
FROZEN = """
[finetune]
rows = 16
[[finetune.phases]]
name = "head"
epochs = 2
trainable = 1
lr = 0.05
"""
STAGE = """
[stage]
rows = 8
bptt = 20
[[stage.phases]]
name = "all"
epochs = 1
lr = 0.01
"""
TRANSLATOR = """
language = "en"
licence = "none"
[tokenizer]
min_frequency = 1
[target_tokenizer]
min_frequency = 1
[model]
embedding_dim = 16
hidden_dim = 16
[head]
embedding_dim = 16
hidden_dim = 32
num_layers = 1
[stage]
rows = 16
clip = 1.0
[[stage.phases]]
name = "all"
epochs = 3
lr = 0.02
"""


def recipes() -> dict[str, str]:
    """The text of each recipe by the name of its file."""
    tuned = {"quick": QUICK, "tags": TAGS, "frozen": FROZEN, "stage": STAGE, "translator": TRANSLATOR}
    found = {f"{name}.toml": HEADER.format(name=name) + body for name, body in tuned.items()}
    for name, parts in PRETRAINED.items():
        tokenizer, model, head, phase = (part.replace("; ", "\n") for part in parts)
        body = LANGUAGE_MODEL.format(name=name, tokenizer=tokenizer, model=model, head=head, phase=phase)
        found[f"{name}.toml"] = body
    return found


def write_recipes(folder: Path, renamed: Mapping[str, str]) -> None:
    """Write all recipes, with `renamed` replaced in their text."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in recipes().items():
        for old, new in renamed.items():
            text = text.replace(old, new)
        (folder / name).write_text(text)


# --- Made-up data -----------------------------------------------------------------------------------------------------

GOOD = ["great", "wonderful", "superb", "lovely", "brilliant"]
BAD = ["awful", "terrible", "boring", "dreadful", "poor"]
PLAIN = ["the", "and", "movie", "it", "I", "film", "plot", "actor"]
THINGS = ["river", "stone", "lamp", "garden", "window", "bread", "silver", "music"]
VERBS = ["sees", "takes", "likes", "finds"]
TITLES = {"captain": "person", "city": "place"}
LEXICON = {"dog": "hund", "cat": "katze", "sees": "sieht", "runs": "läuft", "red": "rot", "old": "alt", "bird": "vogel"}


def review(words: Sequence[str], rng: random.Random, length: int = 14) -> str:
    return "The film was " + " ".join(rng.choice([*words, *PLAIN]) for _ in range(length)) + "."


def reviews(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts and "neg" or "pos"; one label in ten is wrong, so that no score is perfect."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        label = ("neg", "pos")[(number + (rng.random() < 0.1)) % 2]
        made.append((review((BAD, GOOD)[number % 2], rng), label))
    return made


def mixed_reviews(count: int, seed: int) -> list[tuple[str, str]]:
    """Short texts in which praise and blame stand together: the mean of a language model and n-grams is best here."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        rng.random()  # in vain: of the few draws tried, these are some of which both the model and n-grams count
        own, other = ((BAD, GOOD), (GOOD, BAD))[number % 2]
        drawn = (rng.choice(rng.choice([own, own, other, PLAIN, PLAIN, THINGS, VERBS])) for _ in range(6))
        made.append(("The film was " + " ".join(drawn) + ".", ("neg", "pos")[number % 2]))
    return made


def several_labels(count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    made = []
    for number in range(count):
        chosen = [GOOD, BAD, THINGS][: 1 + number % 3] if number % 2 else [THINGS]
        names = [{"great": "praise", "awful": "blame", "river": "thing"}[words[0]] for words in chosen]
        made.append((review([word for words in chosen for word in words], rng), "|".join(names)))
    return made


def numbers_of(count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    texts = [review(GOOD[: 1 + n % 5] + BAD[: 1 + n % 3], rng) for n in range(count)]
    return [(t, f"{sum(t.count(w) for w in GOOD) + rng.random():.2f}") for t in texts]


def statements(count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """A premise, a hypothesis, and whether they name the same thing."""
    rng = random.Random(seed)
    for number in range(count):
        thing = rng.choice(THINGS)
        other = thing if number % 2 else rng.choice([t for t in THINGS if t != thing])
        yield f"A {thing} is in the {rng.choice(THINGS)}.", f"There is a {other}.", ("no", "yes")[number % 2]


def choices(count: int, seed: int) -> list[dict[str, Any]]:
    made = []
    for number, (premise, hypothesis, answer) in enumerate(statements(count, seed)):
        options = [hypothesis, f"There is a {premise.split()[1]}.", "It was boring."][: 2 + number % 2]
        made.append({"context": premise, "choices": options, "answer": "A" if answer == "yes" else "B"})
    return made


def tagged(count: int, seed: int) -> str:
    """CoNLL columns: nouns behind a title are an entity's words."""
    rng = random.Random(seed)
    lines: list[str] = []
    for _ in range(count):
        title = rng.choice([*TITLES, "the"])
        nouns = rng.sample(THINGS, rng.randint(1, 2))
        inside = [f"{'BI'[i > 0]}-{TITLES[title]}" if title in TITLES else "O" for i in range(len(nouns))]
        rows = [(title, "O"), *zip(nouns, inside), (rng.choice(VERBS), "O"), (".", "O")]
        lines += [*(f"{word} {tag}" for word, tag in rows), ""]
    return "\n".join(lines) + "\n"


def questions(count: int, seed: int) -> dict[str, Any]:
    """SQuAD's form, a question an article; every fourth has no answer."""
    rng = random.Random(seed)
    articles = []
    for number in range(count):
        words = [rng.choice(THINGS + VERBS) for _ in range(14)]
        value, open_ = str(rng.randint(10, 59)), number % 4 == 0
        if not open_:
            words[rng.randrange(14)] = value
        context = " ".join(words[:7]) + ". " + " ".join(words[7:]) + "."
        answers = [] if open_ else [{"text": value, "answer_start": context.index(value)}]
        asked: dict[str, Any] = {"id": f"{seed}-{number}", "question": f"how many {words[0]}?", "answers": answers}
        asked["is_impossible"] = open_
        articles.append({"title": f"{seed}-{number}", "paragraphs": [{"context": context, "qas": [asked]}]})
    return {"version": "2.0", "data": articles}


def translations(count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    made = [rng.sample(list(LEXICON), rng.randint(2, 6)) for _ in range(count)]
    return [(" ".join(words), " ".join(LEXICON[w] for w in reversed(words))) for words in made]


def general_text(count: int, seed: int) -> list[str]:
    """Lines for language models in which every word of every task comes up."""
    rng = random.Random(seed)
    tags = [f"{rng.choice([*TITLES, 'the'])} {rng.choice(THINGS)} {rng.choice(VERBS)} ." for _ in range(count // 4)]
    asked = [f"how many {rng.choice(THINGS)}? {rng.randint(10, 59)} {rng.choice(THINGS)}." for _ in range(count // 4)]
    said = [f"{a} {b}" for a, b, _ in statements(count // 4, seed)]
    lines = [text for text, _ in reviews(count, seed)] + tags + asked + said
    rng.shuffle(lines)
    return lines


def write_table(path: Path, rows: Sequence[Sequence[str]], head: Sequence[str] = ("text", "label")) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


def write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_data(folder: Path) -> None:
    """All files that the checks read; the same bytes whenever it is called."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    for name, count, seed in (("train", 40, 1), ("test", 30, 2)):
        write_table(folder / f"{name}.csv", reviews(count, seed))
        write_table(folder / f"{name}-mixed.csv", mixed_reviews(count, seed))
        write_table(folder / f"{name}-multi.csv", several_labels(count, seed))
        write_table(folder / f"{name}-number.csv", numbers_of(count, seed), ("text", "score"))
        write_table(folder / f"{name}-pairs.csv", list(statements(count, seed)), ("premise", "hypothesis", "label"))
        write_lines(folder / f"{name}-choice.jsonl", [json.dumps(row) for row in choices(count, seed)])
        (folder / f"{name}.conll").write_text(tagged(count, seed))
        (folder / f"{name}.json").write_text(json.dumps(questions(count, seed)))
        for ending, side in zip(("en", "xx"), zip(*translations(2 * count, seed), strict=True), strict=True):
            write_lines(folder / f"{name}.{ending}", side)
    write_lines(folder / "general.txt", general_text(400, 3))
    write_lines(folder / "pool.txt", [text for text, _ in reviews(120, 4)])
    write_lines(folder / "pool-mixed.txt", [text for text, _ in mixed_reviews(120, 4)])
    words = [*GOOD, *BAD, *PLAIN, *THINGS, *TITLES, *VERBS]
    vectors = [" ".join([word, *(f"{rng.gauss(0, 1):.4f}" for _ in range(8))]) for word in words]
    write_lines(folder / "words.txt", vectors)
    judged = [f"{a} {b} {rng.random() * 10:.2f}" for a, b in zip(GOOD + PLAIN, BAD + GOOD, strict=False)]
    write_lines(folder / "judged.txt", judged)


# --- The checks -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """A command. {data} and {recipes} are folders, {out} is what it writes, {NAME} what check NAME wrote in BEFORE.

    With `own`, AFTER runs it again on what AFTER's own check NAME wrote.
    """

    name: str
    command: str
    own: bool = False

    @property
    def needs(self) -> list[str]:
        """The checks whose folders it reads."""
        fields = (field for _, field, _, _ in string.Formatter().parse(self.command) if field)
        return [field for field in dict.fromkeys(fields) if field not in ("data", "recipes", "out")]


QUIET = "--threads 1 --quiet --json"
FP32 = f"--precision fp32 {QUIET}"
ASK = "--threads 1 --precision fp32"
ADAPT = "adapt {data}/pool.txt --recipe {recipes}/quick.toml --out {out}"
LSTM = f"--model {{lstm}} --recipe {{recipes}}/quick.toml --max-tokens 32 --out {{out}} {FP32}"
BERT = f"--model {{bert}} --recipe {{recipes}}/quick.toml --max-tokens 32 --out {{out}} {FP32}"
REVIEWS = "{data}/train.csv --test {data}/test.csv"
SENTENCES = "{data}/train.conll --test {data}/test.conll --recipe {recipes}/tags.toml --out {out}"

PRETRAINING = [
    Check(name, f"pretrain {{data}}/general.txt --recipe {{recipes}}/{name}.toml --tokens 8000 --out {{out}} {FP32}")
    for name in PRETRAINED
]
LANGUAGE_MODELS = [
    Check("tokens", "tokenize {data}/general.txt --recipe {recipes}/gpt.toml --out {out} --threads 1 --quiet --json"),
    Check("adapt", f"{ADAPT} --model {{lstm}} {FP32}"),
    Check("adapt-vocabulary", f"{ADAPT} --model {{lstm}} --own-vocabulary {FP32}"),
    Check("adapt-bert", f"{ADAPT} --model {{bert}} {QUIET}"),
    Check(
        "distil-model",
        f"distil {{bert}} {{data}}/pool.txt --recipe {{recipes}}/stage.toml --out {{out}} {FP32}",
    ),
    Check("lr-find", f"lr-find {{data}}/train.csv --model {{lstm}} --steps 20 --json {ASK}"),
    Check(
        "generate", f"generate en-gpt-small -p 'The film' --max-tokens 20 --temperature 0.8 --top-p 0.9 --json {ASK}"
    ),
    Check("generate-beams", f"generate {{lstm}} --prompt 'The film' --max-tokens 10 --beams 3 --json {ASK}"),
    Check(
        "prompt",
        "prompt {gpt} {data}/test.csv --template polarity --shots 2 --examples {data}/train.csv --calibrate"
        f" --out {{out}}.jsonl --json {ASK}",
    ),
]
CLASSIFIERS = [
    Check(
        "finetune-default",
        f"finetune {REVIEWS} --unlabelled {{data}}/pool.txt --max-tokens 24 --minutes 600 --out {{out}} {QUIET}",
    ),
    Check(
        "ensemble",
        f"finetune {REVIEWS.replace('.csv', '-mixed.csv')} --unlabelled {{data}}/pool-mixed.txt --model {{lstm}}"
        f" --minutes 600 --max-tokens 24 --out {{out}} {FP32}",
    ),
    Check("classifier", f"finetune {REVIEWS} --seeds 2 --folds 2 --class-weights balanced {LSTM}"),
    Check("shipped-recipe", f"finetune {REVIEWS} --model {{lstm}} --recipe default --max-tokens 32 -o {{out}} {QUIET}"),
    Check("two-directions", f"finetune {REVIEWS} {LSTM.replace('{lstm}', '{lstm}+{backward}')} --no-baselines"),
    Check("multi", f"finetune {{data}}/train-multi.csv --test {{data}}/test-multi.csv --label-separator '|' {LSTM}"),
    Check("number", f"finetune {{data}}/train-number.csv --test {{data}}/test-number.csv --kind numeric {LSTM}"),
    Check(
        "pairs",
        "finetune {data}/train-pairs.csv --test {data}/test-pairs.csv --text premise --text2 hypothesis"
        f" --both-orders {BERT}",
    ),
    Check("choice", f"finetune {{data}}/train-choice.jsonl --test {{data}}/test-choice.jsonl --kind choice {BERT}"),
    Check("mixed-layers", f"finetune {REVIEWS} --readout mix --no-baselines {BERT}"),
    Check("last-layers", f"finetune {REVIEWS} --readout concat-last-4 --no-baselines {BERT}"),
    Check("contrastive", f"finetune {REVIEWS} --no-baselines {BERT.replace('{recipes}/quick.toml', 'contrastive')}"),
    Check(
        "auxiliary",
        f"finetune {REVIEWS} --model {{gpt}} --recipe gpt --max-tokens 32 --no-baselines --out {{out}} {FP32}",
    ),
    Check(
        "distil",
        "distil {classifier} {data}/pool.txt --student {gpt} --labelled {data}/train.csv --test {data}/test.csv"
        f" --alpha 0.3 --recipe {{recipes}}/quick.toml --out {{out}} {FP32}",
    ),
    Check(
        "compare",
        f"compare {REVIEWS} --unlabelled {{data}}/pool.txt --labels 12,all --seeds 2 --seed 3 --model {{lstm}}"
        " --methods linear,lsa,vectors@{data}/words.txt,self-trained,features,frozen,ulmfit,bert@{bert},elmo@{elmo}"
        f" --recipe {{recipes}}/quick.toml --max-tokens 32 --out {{out}} {FP32}",
    ),
    Check(
        "compare-default",
        f"compare {REVIEWS} --unlabelled {{data}}/pool.txt --labels 20 --seeds 1 --methods default,scratch,fasttext"
        f" --model {{lstm}} --minutes 600 --max-tokens 32 --out {{out}} {FP32}",
    ),
]
TAGGERS = [
    Check("tagger", f"tag finetune {SENTENCES} --model {{bert}} --crf --scheme BIOES --readout mix {FP32}"),
    Check("stacked-tagger", f"tag finetune {SENTENCES} --stack {{data}}/words.txt,{{flair}},{{lstm}}@first {FP32}"),
    Check("pooled-tagger", f"tag finetune {SENTENCES} --stack pooled:{{flair}},{{elmo}}@sum {FP32}"),
    Check("int8-tagger", f"tag finetune {SENTENCES} --stack en-flair-small-forward {QUIET}"),
]
OTHERS = [
    Check(
        "reader",
        "qa finetune {data}/train.json --test {data}/test.json --model {bert} --recipe {recipes}/tags.toml"
        f" --max-tokens 24 --stride 6 --out {{out}} {FP32}",
    ),
    *(
        Check(
            f"vectors-{method}",
            f"vectors train {{data}}/general.txt --method {method} --dimensions 8 --epochs 2 --min-count 2"
            f" --buckets 100 --out {{out}} {QUIET}",
        )
        for method in ("glove", "skipgram", "fasttext")
    ),
    Check(
        "translator",
        "cove train {data}/train.en {data}/train.xx --valid {data}/test.en {data}/test.xx"
        f" --recipe {{recipes}}/translator.toml --score additive --reach local-p --out {{out}} {FP32}",
    ),
    Check(
        "transfer",
        f"inspect transfer {REVIEWS} --layers 2 --seeds 1 {LSTM.replace('--max-tokens 32', '--max-tokens 16')}",
    ),
    Check(
        "readouts",
        "inspect readouts {data}/train.conll --test {data}/test.conll --model {bert} --recipe {recipes}/frozen.toml"
        f" --readouts first,second-to-last,sum,sum-last-4,elmo-mix --seeds 1 --sample 20 --out {{out}} {FP32}",
    ),
    Check("layer-weights", "inspect weights {mixed-layers} {tagger} --out {out} --json"),
    Check(
        "words", f"inspect words {{bert}} {{data}}/general.txt --word actor --occurrences 4 --pool 20 -o {{out}} {FP32}"
    ),
    Check(
        "geometry",
        "inspect geometry {lstm} {data}/general.txt --words 5 --contexts 3 --random 20 --sentences 4"
        f" --out {{out}} {FP32}",
    ),
    Check("export", "export {classifier} --onnx {out} --json"),
    Check("export-int8", "export {mixed-layers} --onnx {out} --int8 --texts {data}/pool.txt --json"),
    Check("export-tagger", "export {tagger} --onnx {out} --json"),
    Check("export-reader", "export {reader} --onnx {out} --json"),
    Check("convert", "convert {bert} --to huggingface --out {out} --json"),
]
ANSWERS = [
    Check("predict", f"predict {{classifier}} {{data}}/test.csv --out {{out}}.csv --probabilities {ASK}", own=True),
    Check("predict-ensemble", f"predict {{ensemble}} {{data}}/test-mixed.csv --probabilities {ASK}", own=True),
    Check("predict-default", "predict {finetune-default} {data}/test.csv --probabilities --threads 1", own=True),
    Check(
        "predict-multi", f"predict {{multi}} {{data}}/test-multi.csv -o {{out}}.jsonl --probabilities {ASK}", own=True
    ),
    Check("predict-number", f"predict {{number}} {{data}}/test-number.csv --json {ASK}"),
    Check("predict-pairs", f"predict {{pairs}} {{data}}/test-pairs.csv --probabilities {ASK}", own=True),
    Check("predict-choice", f"predict {{choice}} {{data}}/test-choice.jsonl --probabilities {ASK}"),
    Check("predict-mixed", f"predict {{mixed-layers}} {{data}}/test.csv --json --probabilities {ASK}", own=True),
    Check("predict-export", "predict {export} {data}/test.csv --probabilities --threads 1", own=True),
    Check("predict-int8", "predict {export-int8} {data}/test.csv --json --probabilities --threads 1"),
    Check("evaluate", f"evaluate {{classifier}} {{data}}/test.csv --json {ASK}"),
    Check("evaluate-ensemble", f"evaluate {{ensemble}} {{data}}/test-mixed.csv --json {ASK}", own=True),
    Check("embed", "embed {bert} {data}/test.csv --layers sum-last-4 --pooling concat --out {out}.npz --threads 1"),
    Check("embed-elmo", "embed {elmo} {data}/test.csv --out {out}.npy --json --threads 1"),
    Check("embed-words", "embed {vectors-glove} {data}/test.csv --out {out}.npy --json --threads 1", own=True),
    Check("explain", f"explain {{classifier}} {{data}}/test.csv --most 4 --out {{out}}.jsonl {ASK}"),
    Check("explain-ensemble", f"explain {{ensemble}} {{data}}/test-mixed.csv --most 3 --json {ASK}"),
    Check("tag", f"tag predict {{tagger}} {{data}}/test.conll --format json {ASK}", own=True),
    Check("tag-stacked", f"tag predict {{stacked-tagger}} {{data}}/test.conll --out {{out}}.jsonl {ASK}", own=True),
    Check("tag-int8", "tag evaluate {int8-tagger} {data}/test.conll --json --quiet --precision int8 --threads 1"),
    Check("tag-export", "tag predict {export-tagger} {data}/test.conll --format conll --threads 1"),
    Check("answer", f"qa answer {{reader}} {{data}}/test.json --n-best {{out}}.json --json --quiet {ASK}", own=True),
    Check("answer-export", "qa evaluate {export-reader} {data}/test.json --json --quiet --threads 1"),
    Check("translate", f"cove translate {{translator}} {{data}}/test.en --beams 2 {ASK}", own=True),
    Check("neighbours", "vectors neighbours {vectors-fasttext} film great -n 5 --json", own=True),
    Check("judged", "vectors evaluate {data}/words.txt --similarity {data}/judged.txt --json"),
]
CHECKS = [*PRETRAINING, *LANGUAGE_MODELS, *CLASSIFIERS, *TAGGERS, *OTHERS, *ANSWERS]
SHIPPED = {"shipped-recipes": ("recipes", "*.toml"), "shipped-models": ("pretrained", "*")}
"""Files of the checkouts themselves that are compared, by the name of the check."""

# --- Running ----------------------------------------------------------------------------------------------------------

RECORD = "record.json"


@dataclass(frozen=True)
class Side:
    """A checkout, and the folder in which what it writes is kept."""

    checkout: Path
    folder: Path
    renamed: bool

    @property
    def recipes(self) -> Path:
        """Where the recipes are that the checks use: one folder for both, if they can be the same."""
        return (self.folder if self.renamed and RENAMED_IN_RECIPES else self.folder.parent) / "recipes"

    def home(self, name: str) -> Path:
        return self.folder / name

    def out(self, name: str) -> Path:
        return self.folder / name / name.removesuffix(OWN)


OWN = "-own"


def expanded(check: Check, side: Side, saved: Side, name: str, work: Path) -> list[str]:
    """The arguments for `side`; folders that the check reads are those of `saved`."""
    places = {need: str(saved.out(need)) for need in check.needs}
    places |= {"data": str(work / "data"), "recipes": str(side.recipes), "out": str(side.out(name))}
    words = shlex.split(check.command)
    if side.renamed:
        words = [RENAMED_OPTIONS.get(word, word if word.startswith("-") else renamed_names(word)) for word in words]
    return [word.format_map(places) for word in words]


def environment(checkout: Path) -> dict[str, str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {k: v for k, v in os.environ.items() if k != "COLUMNS"} | threads | {"PYTHONPATH": str(checkout)}


def make_sure(side: Side, scratch: Path) -> None:
    """Exit unless `import textgraft` finds this checkout."""
    command = [sys.executable, "-c", "import textgraft; print(textgraft.__file__)"]
    env = environment(side.checkout)
    done = subprocess.run(command, cwd=scratch, env=env, capture_output=True, text=True, check=False)
    if done.returncode or side.checkout not in Path(done.stdout.strip()).parents:
        sys.exit(f"{side.checkout}: textgraft is {done.stdout.strip() or done.stderr.strip()}")


def run(check: Check, side: Side, saved: Side, work: Path, *, name: str = "", key: str = "") -> None:
    """Run a check in a fresh folder, where stdout, stderr and a record of the run are left too."""
    name = name or check.name
    home = side.home(name)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    arguments, began = expanded(check, side, saved, name, work), time.monotonic()
    command, env = [sys.executable, "-m", "textgraft", *arguments], environment(side.checkout)
    done = subprocess.run(command, cwd=work / "scratch", env=env, stdin=subprocess.DEVNULL, capture_output=True)
    seconds = round(time.monotonic() - began, 1)
    (home / "stdout").write_bytes(done.stdout)
    (home / "stderr").write_bytes(done.stderr)
    facts = {"key": key, "code": done.returncode, "seconds": seconds, "arguments": arguments}
    (home / RECORD).write_text(json.dumps(facts, indent=1))


def record(side: Side, name: str) -> dict[str, Any]:
    path = side.home(name) / RECORD
    return json.loads(path.read_text()) if path.exists() else {}


def commit(checkout: Path) -> str:
    """The commit of a checkout and what is changed in it, which a cached answer depends on."""
    git = ["git", "-C", str(checkout)]
    said = [
        subprocess.run([*git, *more], capture_output=True, text=True, check=False).stdout
        for more in (["rev-parse", "HEAD"], ["diff", "HEAD", "--", "textgraft", "recipes"])
    ]
    return "".join(said) or str(checkout)


def keys(checkout: Path, data: Path) -> dict[str, str]:
    """What BEFORE's answer to each check depends on, hashed: the code, the files it names, the checks it reads."""
    code, texts = commit(checkout) + str(data), recipes()
    found: dict[str, str] = {}
    for check in CHECKS:
        named = re.findall(r"{data}/([\w.-]+)", check.command)
        parts = [code, check.command, *(hashlib.sha256((data / name).read_bytes()).hexdigest() for name in named)]
        parts += [texts[name] for name in re.findall(r"{recipes}/([\w.-]+)", check.command)]
        parts += [found[need] for need in check.needs]
        found[check.name] = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return found


# --- Comparing --------------------------------------------------------------------------------------------------------

NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
Differences = list[str]


def renamed_names(text: str) -> str:
    """`text` with AFTER's names for BEFORE's, where they stand as whole words and not in a path."""
    for old, new in RENAMED_NAMES.items():
        text = re.sub(rf"(?<![\w/.{{-]){re.escape(old)}(?![\w/.}}-])", new, text)
    return text


def renamed(value: Any) -> Any:
    """BEFORE's JSON in AFTER's words."""
    if isinstance(value, dict):
        return {RENAMED_KEYS.get(key, renamed_names(key)): renamed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner) for inner in value]
    return renamed_names(value) if isinstance(value, str) else value


def ignored(key: str) -> bool:
    return key in IGNORED_KEYS or key.endswith(IGNORED_ENDINGS)


def compared(value: Any) -> Any:
    """JSON without what is ignored, and prose as the numbers in it."""
    if isinstance(value, dict):
        return {
            key: numbers_in(inner) if key in PROSE_KEYS else compared(inner)
            for key, inner in value.items()
            if not ignored(key)
        }
    return [compared(inner) for inner in value] if isinstance(value, list) else value


def numbers_in(prose: Any) -> Any:
    """Only the numbers of strings; whatever else there is stays."""
    if isinstance(prose, dict):
        return {key: numbers_in(inner) for key, inner in prose.items() if not ignored(key)}
    if isinstance(prose, list):
        return [numbers_in(inner) for inner in prose]
    return NUMBER.findall(TIMED.sub("", prose)) if isinstance(prose, str) else prose


def exact_numbers(value: Any) -> Counter[str]:
    """How often each number of six and more significant digits comes up."""
    found: Counter[str] = Counter()
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            found += exact_numbers(inner)
    elif isinstance(value, float) and len(re.sub(r"e.*|\D", "", repr(value)).strip("0")) >= 6:
        found[repr(value)] += 1
    return found


def unlike(before: Any, after: Any, where: str) -> Differences:
    """Each place at which two JSON values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        shared = [key for key in before if key in after]
        lost = [f"{where}: {key!r} only in BEFORE" for key in before if key not in after]
        new = [f"{where}: {key!r} only in AFTER" for key in after if key not in before]
        return lost + new + [d for key in shared for d in unlike(before[key], after[key], f"{where}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [d for i, pair in enumerate(zip(before, after)) for d in unlike(*pair, f"{where}[{i}]")]
    both_nan = all(isinstance(v, float) and math.isnan(v) for v in (before, after))
    if both_nan or (before == after and type(before) is type(after)):
        return []
    return [f"{where}: {shown(before)} -> {shown(after)}"]


def shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 60 else f"{text[:57]}..."


@dataclass(frozen=True)
class Comparer:
    """Compares what two runs wrote. `places` are paths of BEFORE's and of AFTER's run that mean the same."""

    places: tuple[tuple[str, ...], tuple[str, ...]]
    numbers_only: bool = False

    def text(self, path: Path, side: int) -> str:
        """A file's text with its run's own paths taken out."""
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        for place in self.places[side]:
            text = text.replace(place, "<place>")
        return text

    def folders(self, before: Path, after: Path, skip: Set[str] = frozenset()) -> Differences:
        """Compare all files below two folders, by their names."""
        theirs = {self.new_path(path.relative_to(before)): path for path in files(before, skip)}
        ours = {path.relative_to(after): path for path in files(after, skip)}
        found = [f"{name}: only in BEFORE" for name in theirs if name not in ours]
        found += [f"{name}: only in AFTER" for name in ours if name not in theirs]
        for name in (name for name in theirs if name in ours):
            found += self.files(theirs[name], ours[name], str(name))
        return found

    @staticmethod
    def new_path(path: Path) -> Path:
        return Path(*(RENAMED_FILES.get(part, renamed_names(part)) for part in path.parts))

    def files(self, before: Path, after: Path, name: str) -> Differences:
        """Compare two files by what they are."""
        if before.suffix in NOT_COMPARED or before.read_bytes() == after.read_bytes():
            return []
        if before.suffix == ".safetensors":
            return unlike_tensors(safetensors(before, RENAMED_TENSORS), safetensors(after, {}), name)
        if before.suffix in (".npz", ".npy"):
            return unlike_tensors(arrays(before), arrays(after), name)
        if before.suffix == ".onnx":
            return unlike_tensors(graph_weights(before), graph_weights(after), name)
        texts = [self.text(path, side) for side, path in enumerate((before, after))]
        if before.suffix == ".toml":
            for old, new in RENAMED_IN_RECIPES.items():
                texts[0] = re.sub(rf"^{re.escape(old)}", new, texts[0], flags=re.MULTILINE)
        parsed = [parse(text, path) for text, path in zip(texts, (before, after), strict=True)]
        return self.values(parsed[0], parsed[1], name)

    def values(self, before: Any, after: Any, name: str) -> Differences:
        """Compare two parsed files, BEFORE's with its names made AFTER's."""
        if isinstance(before, str) or isinstance(after, str):
            return unlike(str(renamed(before)).splitlines(), str(after).splitlines(), name)
        one, other = compared(renamed(before)), compared(after)
        found = unlike(one, other, name)
        if not found:
            return []
        if exact_numbers(one) == exact_numbers(other):
            return [] if self.numbers_only else [*found, f"{name}: but all exact numbers are the same"]
        return found


def files(folder: Path, skip: Set[str]) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in skip]


def parse(text: str, path: Path) -> Any:
    """JSON, a list of JSON lines or TOML as values, else the text."""
    if path.suffix == ".toml":
        return tomllib.loads(text)
    try:
        value = json.loads(text)
    except ValueError:
        try:
            return [json.loads(line) for line in text.splitlines()]
        except ValueError:
            return text
    if path.name == "config.json" and isinstance(value, dict):  # hashes of files, in which times stand
        return {key: inner for key, inner in value.items() if key not in ("files", "sha256")}
    return value


Tensors = dict[str, tuple[str, str]]
"""Of each tensor: its type and shape, and the hash of its bytes."""


def safetensors(path: Path, renamed_parts: Mapping[str, str]) -> Tensors:
    """The tensors of a file; what else its header says (who wrote it) is left out."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    found: Tensors = {}
    for name, about in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        for old, new in renamed_parts.items():
            name = name.replace(old, new)
        name = renamed_names(name) if renamed_parts else name
        first, last = about["data_offsets"]
        value = hashlib.sha256(data[start + first : start + last]).hexdigest()
        found[name] = f"{about['dtype']} {about['shape']}", value
    return found


def arrays(path: Path) -> Tensors:
    import numpy as np

    loaded = np.load(path)
    named = {path.name: loaded} if path.suffix == ".npy" else dict(loaded)
    return {
        name: (f"{array.dtype} {array.shape}", hashlib.sha256(array.tobytes()).hexdigest())
        for name, array in named.items()
    }


def graph_weights(path: Path) -> Tensors:
    """The weights of an ONNX graph in order of their bytes: names are free, and answers are another check."""
    import onnx

    graph = onnx.load(str(path)).graph
    made = [
        (f"{one.data_type} {list(one.dims)}", hashlib.sha256(onnx.numpy_helper.to_array(one).tobytes()).hexdigest())
        for one in graph.initializer
    ]
    return {str(number): one for number, one in enumerate(sorted(made))}


def unlike_tensors(before: Tensors, after: Tensors, where: str) -> Differences:
    found = [f"{where}: tensor {name!r} only in BEFORE" for name in before if name not in after]
    found += [f"{where}: tensor {name!r} only in AFTER" for name in after if name not in before]
    for name in (name for name in before if name in after and before[name] != after[name]):
        kinds = before[name][0], after[name][0]
        what = "has other values" if kinds[0] == kinds[1] else " -> ".join(kinds)
        found.append(f"{where}: tensor {name!r} {what}")
    return found


# --- The whole --------------------------------------------------------------------------------------------------------


@dataclass
class Trial:
    """Two checkouts side by side, and what came of the checks so far."""

    before: Side
    after: Side
    work: Path
    numbers_only: bool
    compare_only: bool
    different: list[str]

    def prepare(self) -> None:
        write_data(self.work / "data")
        (self.work / "scratch").mkdir(exist_ok=True)
        for side in (self.before, self.after):
            write_recipes(side.recipes, RENAMED_IN_RECIPES if side.renamed else {})
        for side in (self.before, self.after):
            make_sure(side, self.work / "scratch")

    def answered(self, check: Check, saved: Side, name: str) -> bool:
        """Run a check in AFTER, unless answers are only compared; whether there is one."""
        if not self.compare_only:
            run(check, self.after, saved, self.work, name=name)
        return bool(record(self.before, check.name) and record(self.after, name))

    def ensure_before(self, name: str, known: Mapping[str, str]) -> None:
        """BEFORE's answer to a check, and to those whose folders it reads, unless they are there already."""
        check = next(check for check in CHECKS if check.name == name)
        for need in check.needs:
            self.ensure_before(need, known)
        if record(self.before, name).get("key") != known[name]:
            run(check, self.before, self.before, self.work, key=known[name])

    def one(self, check: Check, known: Mapping[str, str], made: set[str]) -> None:
        """Run a check in AFTER, compare, and say so; `made` are checks whose folders AFTER has written this time."""
        if not self.compare_only:
            self.ensure_before(check.name, known)
        if not self.answered(check, self.before, check.name):
            self.tell(check.name, ["was never run"], "")
            return
        self.tell(check.name, self.found(check.name, check.name), self.took(check.name, check.name))
        made.add(check.name)
        own = check.name + OWN
        if check.own and made.issuperset(check.needs) and self.answered(check, self.after, own):
            self.tell(own, self.found(check.name, own), self.took(check.name, own))

    def took(self, name: str, after: str) -> str:
        return f"{record(self.before, name)['seconds']:.1f} s, {record(self.after, after)['seconds']:.1f} s"

    def found(self, name: str, after: str) -> Differences:
        """What differs between BEFORE's folder of a check and AFTER's."""
        for word, side, which in (("BEFORE", self.before, name), ("AFTER", self.after, after)):
            if code := record(side, which)["code"]:
                said = (side.home(which) / "stderr").read_text(errors="replace").strip().splitlines()
                return [f"{word} failed with exit code {code}: {said[-1] if said else 'it said nothing'}"]
        # The longest first. What AFTER reads of BEFORE's is no difference, nor what it reads of its own.
        places = tuple(
            (str(side.home(which)), str(side.folder), str(side.checkout), str(side.recipes.parent))
            for side, which in ((self.before, name), (self.after, after))
        )
        comparer = Comparer((places[0], (*places[1], *places[0])), self.numbers_only)
        return comparer.folders(self.before.home(name), self.after.home(after), {RECORD, "stderr"})

    def shipped(self, name: str) -> None:
        """Compare files that lie in the checkouts themselves."""
        folder, pattern = SHIPPED[name]
        comparer = Comparer(((str(self.before.checkout),), (str(self.after.checkout),)), self.numbers_only)
        self.tell(name, comparer.folders(self.before.checkout / folder, self.after.checkout / folder), pattern)

    def tell(self, name: str, found: Differences, about: str) -> None:
        if found:
            self.different.append(name)
            more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
            print(f"DIFFERS {name}: {'; '.join(found[:3])}{more}", flush=True)
        else:
            print(f"same    {name} ({about})", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, help="the checkout from before the refactor")
    parser.add_argument("after", type=Path, help="the checkout to compare with it")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these checks alone")
    default = Path(tempfile.gettempdir()) / "textgraft-same-results"
    parser.add_argument("--work", type=Path, default=default, help=f"where outputs are kept ({default})")
    parser.add_argument("--numbers-only", action="store_true", help="JSON is the same if its exact numbers are")
    parser.add_argument("--list", action="store_true", help="show all checks and run none")
    parser.add_argument("--compare-only", action="store_true", help="run nothing, compare what is in the work folder")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    names = [*SHIPPED, *(check.name for check in CHECKS)]
    if asked.list:
        print(*(f"{check.name}: textgraft {check.command}" for check in CHECKS), *SHIPPED, sep="\n")
        return
    if unknown := set(asked.only) - set(names):
        sys.exit(f"no check named {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    work = asked.work.resolve()
    before = Side(asked.before.resolve(), work / "before", renamed=False)
    after = Side(asked.after.resolve(), work / "after", renamed=True)
    trial = Trial(before, after, work, asked.numbers_only, asked.compare_only, [])
    trial.prepare()
    wanted = [name for name in names if not asked.only or name in asked.only]
    known, made, began = keys(before.checkout, work / "data"), set[str](), time.monotonic()
    for name in (name for name in wanted if name in SHIPPED):
        trial.shipped(name)
    for check in (check for check in CHECKS if check.name in wanted):
        trial.one(check, known, made)
    minutes = (time.monotonic() - began) / 60
    print(f"\n{len(wanted)} checks in {minutes:.1f} minutes, {len(trial.different)} differ", end="")
    print(f": {', '.join(trial.different)}" if trial.different else "")
    sys.exit(bool(trial.different))


if __name__ == "__main__":
    main()
