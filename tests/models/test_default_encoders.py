"""The default sentence encoder: of the texts' language, on this machine, the largest that is quick enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from textgraft.data.examples import Examples
from textgraft.models import default_encoders, loading
from textgraft.models.catalogue import KnownModel
from textgraft.models.default_encoders import default_encoder, language_of
from textgraft.tasks.classification.finetune_options import FinetuneOptions

ENGLISH = ["Where is my new card?", "I have not received the money that was sent to me."]
GERMAN = ["Wo ist meine neue Karte?", "Ich habe das Geld nicht bekommen, das mir geschickt wurde."]
THAI = ["บัตรใหม่ของฉันอยู่ที่ไหน", "ฉันยังไม่ได้รับเงินที่ส่งมา"]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the models that are on this machine."""
    names: set[str] = set()

    def in_cache(entry: KnownModel) -> Path | None:
        return Path(entry.name) if entry.name in names else None

    monkeypatch.setattr(default_encoders, "in_cache", in_cache)
    monkeypatch.setattr(loading, "load_network", lambda name: None)
    return names


@pytest.mark.parametrize(("texts", "language"), [(ENGLISH, "en"), (GERMAN, ""), (THAI, "th"), ([], ""), (["?!"], "")])
def test_the_language_is_told_by_letters_and_function_words(texts: list[str], language: str) -> None:
    assert language_of(texts) == language


def test_an_encoder_of_the_language_that_is_here(here: set[str]) -> None:
    assert default_encoder(ENGLISH) is None
    here |= {"minilm", "roberta", "multilingual-e5-base"}  # no sentence encoder, and one that is too large
    assert default_encoder(ENGLISH) == "minilm"
    assert default_encoder(GERMAN) is default_encoder(THAI) is None
    here |= {"mpnet", "multilingual-minilm"}
    assert default_encoder(GERMAN) == default_encoder(THAI) == "multilingual-minilm"
    assert default_encoder(ENGLISH) == "mpnet"  # which knows English alone, and more of it than minilm


def test_finetune_begins_with_it_unless_the_language_model_is_meant(here: set[str]) -> None:
    here.add("minilm")
    train = Examples(ENGLISH, ["a", "b"], "single")
    assert FinetuneOptions().default_model(train) == "minilm"
    assert FinetuneOptions(recipe="default").default_model(train) == "en-ulmfit"
    assert FinetuneOptions(from_scratch=True).default_model(train) == "en-ulmfit"
