"""The default sentence encoder: of the texts' language, on this machine, the largest that is quick enough."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from textgraft.data.examples import Examples
from textgraft.models import default_encoders, loading, packaged
from textgraft.models.catalogue import KnownModel
from textgraft.models.default_encoders import MIN_WHOLE, default_encoder, language_of, whole_words
from textgraft.tasks.classification.finetune_options import FinetuneOptions

ENGLISH = ["Where is my new card?", "I have not received the money that was sent to me."]
GERMAN = ["Wo ist meine neue Karte?", "Ich habe das Geld nicht bekommen, das mir geschickt wurde."]
TITLES = ["Printer broken again", "Red cotton shirt size L", "Fed raises rates"]
THAI = ["บัตรใหม่ของฉันอยู่ที่ไหน", "ฉันยังไม่ได้รับเงินที่ส่งมา"]


class EnglishWords:
    """A tokenizer that knows the words of TITLES, and cuts others into letters."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[0, *([1] if text and text in " ".join(TITLES) else [2] * len(text)), 3] for text in texts]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the models that are on this machine."""
    names: set[str] = set()

    def in_cache(entry: KnownModel) -> Path | None:
        return Path(entry.name) if entry.name in names else None

    monkeypatch.setattr(default_encoders, "in_cache", in_cache)
    monkeypatch.setattr(loading, "load_network", lambda name: SimpleNamespace(tokenizer=EnglishWords()))
    return names


@pytest.mark.parametrize(("texts", "language"), [(ENGLISH, "en"), (GERMAN, ""), (THAI, "th"), ([], ""), (["?!"], "")])
def test_the_language_is_told_by_letters_and_function_words(texts: list[str], language: str) -> None:
    assert language_of(texts) == language


def test_an_encoder_of_the_language_that_is_here(here: set[str]) -> None:
    assert default_encoder(ENGLISH) is None
    here |= {"minilm", "roberta", "multilingual-e5-base"}  # no sentence encoder, and one that is too large
    assert default_encoder(ENGLISH) == "minilm"
    assert default_encoder(THAI) is None
    with pytest.warns(UserWarning, match=r"'minilm' is here, and not used"):
        assert default_encoder(GERMAN) is None
    here |= {"mpnet", "multilingual-minilm"}
    assert default_encoder(GERMAN) == default_encoder(THAI) == "multilingual-minilm"
    assert default_encoder(ENGLISH) == "mpnet"  # which knows English alone, and more of it than minilm


def test_english_without_function_words_is_told_by_the_tokenizer(here: set[str]) -> None:
    """Titles, headlines and products: the bundled English models were taken, and the encoder left out in silence."""
    here.add("minilm")
    assert language_of(TITLES) == ""
    assert default_encoder(TITLES) == "minilm"
    assert whole_words(EnglishWords(), TITLES) == 1.0
    assert whole_words(EnglishWords(), ["Printer kaputt", "a b c"]) == 0.5
    assert whole_words(EnglishWords(), ["?!", "a b c"]) == 0.0


@pytest.mark.parametrize(
    ("texts", "is_english"),
    [
        (["Acute myocardial infarction", "Chronic kidney disease stage 3", "Bilateral cataract extraction"], True),
        (["Stainless steel water bottle", "Wireless earbuds noise cancelling", "USB-C charger fast 20W"], True),
        (["Drucker schon wieder kaputt", "Passwort zurücksetzen", "VPN bricht ständig ab"], False),
        (["Imprimante encore en panne", "Mot de passe oublié", "Facture débitée deux fois"], False),
        (["Printer rusak lagi", "Lupa kata sandi", "Tagihan ganda", "Barang salah kirim"], False),
    ],
)
def test_the_words_that_minilm_knows(texts: list[str], is_english: bool) -> None:
    if not packaged.is_installed("minilm"):
        pytest.skip("MiniLM is not installed")
    known = whole_words(loading.load_network("minilm").tokenizer, texts)
    assert known > MIN_WHOLE + 0.2 if is_english else known < MIN_WHOLE - 0.1


def test_finetune_begins_with_it_unless_the_language_model_is_meant(here: set[str]) -> None:
    here.add("minilm")
    train = Examples(ENGLISH, ["a", "b"], "single")
    assert FinetuneOptions().default_model(train) == "minilm"
    assert FinetuneOptions(recipe="default").default_model(train) == "en-ulmfit"
    assert FinetuneOptions(from_scratch=True).default_model(train) == "en-ulmfit"
