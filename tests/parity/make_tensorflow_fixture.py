"""Writes tests/parity/tensorflow/: tiny checkpoints of Google's BERT and OpenAI's GPT-2, and what they compute.

    pip install tensorflow-cpu && python tests/parity/make_tensorflow_fixture.py

TensorFlow's own Saver writes the files, optimizer's variables among them, and TensorFlow computes the outputs, by the
formulas of Devlin et al. 2019 and Radford et al. 2019 over the variables by their published names. Weights are random.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parent / "tensorflow"
BERT = {
    "vocab_size": 22,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 10,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
}
GPT2 = {"n_vocab": 259, "n_ctx": 12, "n_embd": 8, "n_head": 2, "n_layer": 2}
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "film",
    "the",
    "good",
    "bad",
    "##ly",
    "##s",
    "un",
    "##good",
    "was",
    "is",
    "not",
    "very",
    ".",
    ",",
    "we",
    "saw",
]
v1 = tf.compat.v1


def variable(name: str, *shape: int, near: float = 0.0) -> Any:
    """A random variable, from its own name, so that no two are alike."""
    values = np.random.default_rng(list(name.encode())).normal(near, 0.3, shape).astype(np.float32)
    return v1.get_variable(name, initializer=values)


def dense(x: Any, name: str, width: int) -> Any:
    kernel = variable(f"{name}/kernel", int(x.shape[-1]), width)
    return tf.tensordot(x, kernel, 1) + variable(f"{name}/bias", width)


def normalised(x: Any, eps: float) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + eps)


def norm(x: Any, name: str) -> Any:
    width = int(x.shape[-1])
    gain, bias = variable(f"{name}/gamma", width, near=1.0), variable(f"{name}/beta", width)
    return normalised(x, 1e-12) * gain + bias


def attended(q: Any, k: Any, v: Any, heads: int, seen: Any) -> Any:
    """Scaled dot products over the positions that `seen` (..., T, T) has 1 for."""
    q, k, v = (tf.stack(tf.split(x, heads, axis=-1), 1) for x in (q, k, v))
    scores = tf.matmul(q, k, transpose_b=True) / np.sqrt(int(q.shape[-1])) - 1e10 * (1 - seen)
    return tf.concat(tf.unstack(tf.matmul(tf.nn.softmax(scores), v), axis=1), -1)


def bert(ids: np.ndarray, segments: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
    width = BERT["hidden_size"]
    words = variable("bert/embeddings/word_embeddings", BERT["vocab_size"], width)
    types = variable("bert/embeddings/token_type_embeddings", 2, width)
    positions = variable("bert/embeddings/position_embeddings", BERT["max_position_embeddings"], width)
    x = tf.gather(words, ids) + tf.gather(types, segments) + positions[: ids.shape[1]]
    x = norm(x, "bert/embeddings/LayerNorm")
    seen = tf.constant(mask[:, None, None, :], tf.float32)
    for index in range(BERT["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{index}"
        q, k, v = (dense(x, f"{layer}/attention/self/{part}", width) for part in ("query", "key", "value"))
        context = attended(q, k, v, BERT["num_attention_heads"], seen)
        x = norm(x + dense(context, f"{layer}/attention/output/dense", width), f"{layer}/attention/output/LayerNorm")
        wide = tf.nn.gelu(dense(x, f"{layer}/intermediate/dense", BERT["intermediate_size"]), approximate=False)
        x = norm(x + dense(wide, f"{layer}/output/dense", width), f"{layer}/output/LayerNorm")
    pooled = tf.tanh(dense(x[:, 0], "bert/pooler/dense", width))
    hidden = tf.nn.gelu(dense(x, "cls/predictions/transform/dense", width), approximate=False)
    hidden = norm(hidden, "cls/predictions/transform/LayerNorm")
    logits = tf.tensordot(hidden, tf.transpose(words), 1) + variable("cls/predictions/output_bias", BERT["vocab_size"])
    pairs = tf.matmul(pooled, variable("cls/seq_relationship/output_weights", 2, width), transpose_b=True)
    return {"logits": logits, "pairs": pairs + variable("cls/seq_relationship/output_bias", 2)}


def gpt2(ids: np.ndarray) -> dict[str, Any]:
    width, length = GPT2["n_embd"], ids.shape[1]

    def normed(x: Any, name: str) -> Any:
        return normalised(x, 1e-5) * variable(f"{name}/g", width, near=1.0) + variable(f"{name}/b", width)

    def convolved(x: Any, name: str, outputs: int) -> Any:
        return tf.tensordot(x, variable(f"{name}/w", 1, int(x.shape[-1]), outputs)[0], 1) + variable(
            f"{name}/b", outputs
        )

    words = variable("model/wte", GPT2["n_vocab"], width)
    x = tf.gather(words, ids) + variable("model/wpe", GPT2["n_ctx"], width)[:length]
    seen = tf.constant(np.tril(np.ones((length, length), np.float32)))
    for index in range(GPT2["n_layer"]):
        layer = f"model/h{index}"
        q, k, v = tf.split(convolved(normed(x, f"{layer}/ln_1"), f"{layer}/attn/c_attn", 3 * width), 3, axis=-1)
        x += convolved(attended(q, k, v, GPT2["n_head"], seen), f"{layer}/attn/c_proj", width)
        wide = tf.nn.gelu(convolved(normed(x, f"{layer}/ln_2"), f"{layer}/mlp/c_fc", 4 * width), approximate=True)
        x += convolved(wide, f"{layer}/mlp/c_proj", width)
    return {"logits": tf.tensordot(normed(x, "model/ln_f"), tf.transpose(words), 1)}


def byte_names() -> list[str]:
    """GPT-2's character for each byte: itself where it can be seen, else the next one from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in seen else next(others)) for byte in range(256)]


def write(name: str, files: dict[str, str], outputs: dict[str, Any], slots: list[str], inputs: dict[str, Any]) -> None:
    folder = FOLDER / name
    folder.mkdir(parents=True)
    for slot in slots:
        variable(slot, 3)
    v1.get_variable("global_step", initializer=np.int64(1000))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        found = session.run(outputs)
        prefix = str(folder / ("bert_model.ckpt" if name == "bert" else "model.ckpt"))
        v1.train.Saver().save(session, prefix, write_meta_graph=False, write_state=False)
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    np.savez_compressed(folder / "expected.npz", **found, **inputs)


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    v1.disable_eager_execution()
    rng = np.random.default_rng(0)
    with v1.Graph().as_default():
        inputs = {"ids": rng.integers(5, 22, (2, 7)), "segments": np.array([[0] * 4 + [1] * 3] * 2)}
        inputs["mask"] = np.array([[1] * 7, [1] * 5 + [0] * 2])
        files = {"bert_config.json": json.dumps(BERT, indent=1) + "\n", "vocab.txt": "".join(f"{p}\n" for p in PIECES)}
        slots = ["bert/pooler/dense/kernel/adam_m", "bert/pooler/dense/kernel/adam_v"]
        write("bert", files, bert(**inputs), slots, inputs)
    with v1.Graph().as_default():
        inputs = {"ids": rng.integers(0, 256, (2, 9))}
        merges = [("t", "h"), ("th", "e")]
        tokens = [*sorted(byte_names()), "th", "the", "<|endoftext|>"]
        files = {
            "hparams.json": json.dumps(GPT2) + "\n",
            "encoder.json": json.dumps({token: i for i, token in enumerate(tokens)}) + "\n",
            "vocab.bpe": "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges),
        }
        write("gpt2", files, gpt2(**inputs), ["model/wpe/Adam", "model/wpe/Adam_1"], inputs)


if __name__ == "__main__":
    main()
