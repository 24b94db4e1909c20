"""Tiny tokenizers in folders as RoBERTa, XLM-R, CamemBERT and MPNet were published, trained on a few sentences."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Pipeline

SENTENCES = [
    "the film was good and the cat was bad , wasn't it ?",
    "Ada met Grace in London on 3 May 1843 ; Charles stayed at home .",
    "ภาพยนตร์เรื่องนี้ดีมาก ฉันชอบน้ำตาลและกาแฟ",
    "เธอไปทำงานที่กรุงเทพ ทุกวันจันทร์",
    "The film was great wonderful superb lovely brilliant awful terrible boring dreadful poor movie I plot actor .",
    "how many lamp garden window bread silver music winter horse paper cloud river stone the captain sees takes city",
    "0 1 2 3 4 5 6 7 8 9 1234567890",
    "Café naïve résumé, 10 € and 20 %.",
]
KINDS = ("roberta", "xlm-roberta", "camembert", "mpnet")
CLASSES = {
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "mpnet": "MPNetTokenizer",
}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
MASK = AddedToken("<mask>", lstrip=True, normalized=False, special=True)


def pipeline(kind: str) -> Pipeline:
    """The tokenizer of a kind, complete."""
    return Pipeline.from_str(_complete(kind))


@cache  # the trainers number some pieces in the order of a hash
def _complete(kind: str) -> str:
    tokenizer = of_bytes() if kind == "roberta" else of_word_pieces() if kind == "mpnet" else of_unigrams(kind)
    first, last = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    if kind in ("roberta", "mpnet"):
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", last), ("<s>", first), True, False)
    else:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>",
            pair="<s> $A </s> </s> $B </s>",
            special_tokens=[("<s>", first), ("</s>", last)],
        )
    return str(tokenizer.to_str())


def save(kind: str, folder: Path, *, whole: bool = True) -> Path:
    """A folder with the tokenizer of a kind: tokenizer.json, or the older files."""
    folder.mkdir(exist_ok=True)
    made = pipeline(kind)
    if whole:
        made.enable_padding(pad_id=1, pad_token="<pad>", length=30)  # as sentence-transformers leaves it
        made.enable_truncation(12)
        made.save(str(folder / "tokenizer.json"))
        made.no_padding()
        made.no_truncation()
    elif kind == "roberta":
        content = json.loads(made.to_str())["model"]
        (folder / "vocab.json").write_text(json.dumps(content["vocab"]))
        pairs = [" ".join(pair) for pair in content["merges"]]
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *pairs]) + "\n")
    elif kind == "mpnet":
        ids = made.get_vocab()
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in sorted(ids, key=ids.__getitem__)))
    else:
        begin = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
        (folder / "sentencepiece.bpe.model").write_bytes(sentencepiece([*begin, *unigrams()]))
    config = {f"{role}_token": token for role, token in {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}.items()}
    config |= {"cls_token": "<s>", "sep_token": "</s>", "unk_token": "[UNK]" if kind == "mpnet" else "<unk>"}
    config |= {"mask_token": {"content": "<mask>", "lstrip": True, "__type": "AddedToken"}}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": CLASSES[kind], **config}))
    return folder


def of_bytes() -> Pipeline:
    """RoBERTa's: GPT-2's byte pairs after four special tokens, <mask> at the end."""
    trained = Pipeline(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(
        SENTENCES * 3,
        trainers.BpeTrainer(vocab_size=420, special_tokens=SPECIAL, show_progress=False, initial_alphabet=alphabet),
    )
    content = json.loads(trained.to_str())["model"]
    ids = content["vocab"] | {"<mask>": len(content["vocab"])}
    made = Pipeline(models.BPE(vocab=ids, merges=[tuple(pair) for pair in content["merges"]]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, normalized=True, special=True) for token in SPECIAL])
    made.add_special_tokens([MASK])
    return made


def of_word_pieces() -> Pipeline:
    """MPNet's: BERT's vocabulary, with BERT's own special tokens, after four others, <mask> at the end."""
    trained = Pipeline(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = normalizers.BertNormalizer(lowercase=True)
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    berts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = trained.normalizer.normalize_str("".join(SENTENCES))
    inside = sorted({f"##{character}" for character in characters})  # else they are numbered in hash order
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=[*SPECIAL, *berts, *inside], show_progress=False)
    trained.train_from_iterator(SENTENCES * 3, trainer)
    vocab = trained.get_vocab()
    made = Pipeline(models.WordPiece({**vocab, "<mask>": len(vocab)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    made.decoder = decoders.WordPiece(prefix="##")
    made.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in (*SPECIAL, "[UNK]")])
    made.add_special_tokens([MASK])
    return made


@cache
def unigrams() -> list[tuple[str, float]]:
    """Pieces of a unigram model without special tokens, and their scores."""
    trained = Pipeline(models.Unigram())
    trained.pre_tokenizer = word_marks()
    trained.train_from_iterator(SENTENCES * 3, trainers.UnigramTrainer(vocab_size=300, show_progress=False))
    return [(str(piece), float(score)) for piece, score in json.loads(trained.to_str())["model"]["vocab"]]


def word_marks() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])


def of_unigrams(kind: str) -> Pipeline:
    """XLM-R's or CamemBERT's, by fairseq's ids."""
    own = [(token, 0.0) for token in SPECIAL]
    if kind == "camembert":
        own = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)]
        own += [("<s>", 0.0), ("</s>", 0.0)]
    made = Pipeline(models.Unigram([*own, *unigrams(), ("<mask>", 0.0)], unk_id=3))
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer, made.decoder = word_marks(), decoders.Metaspace()
    made.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    made.add_special_tokens([MASK])
    return made


def sentencepiece(pieces: Sequence[tuple[str, float]], *, kind: int = 1, character_map: bytes = b"") -> bytes:
    """A SentencePiece file of these pieces: the fields of its protocol buffer that a reader needs."""

    def field(number: int, data: bytes) -> bytes:
        return varint(number << 3 | 2) + varint(len(data)) + data

    def varint(value: int) -> bytes:
        low = value & 127
        return bytes([low]) if value < 128 else bytes([low | 128]) + varint(value >> 7)

    listed = [field(1, field(1, p.encode()) + varint(2 << 3 | 5) + struct.pack("<f", s)) for p, s in pieces]
    trainer = field(2, varint(3 << 3) + varint(kind))
    return b"".join(listed) + trainer + field(3, field(1, b"nmt_nfkc") + field(2, character_map))


def upper_to_lower_a() -> bytes:
    """A compiled character map that replaces "A" by "a": a double array of one path, and the replacement."""
    units = [0] * 1024
    units[0] = 256 << 10
    units[256 ^ 0x41] = 0x41 | 1 << 8 | 512 << 10
    units[256 ^ 0x41 ^ 512] = 1 << 31
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + b"a\0"
