"""Encodings older than UTF-8: the right letters, or none."""

import pytest

from textgraft.data.legacy_encodings import guess_encoding

TEXTS = {
    "de": "Schlechter Ton, müde Schauspieler; die Bühne war großartig, schön gespielt.\nÄrger über Öl\n",
    "fr": "Très bien joué, à voir. L'été dernier, où était la forêt ? Ça déçoit, même à Noël.\n",
    "es": "El niño comió muchísimo; la señora está aquí. ¿Qué pasó? ¡Corazón!\n",
    "sv": "Det är en bra film, på många sätt. Åsa såg den för länge sedan.\n",
    "pl": "Zażółć gęślą jaźń. Bardzo dobry film, świetna gra aktorów. Źle się ogląda.\n",
    "cs": "Příliš žluťoučký kůň úpěl ďábelské ódy\nTento film se mi líbil, určitě doporučuji.\n",
    "ru": "Это очень хороший фильм, мне понравилось. Рекомендую всем друзьям\n",
    "el": "Αυτή είναι μια πολύ καλή ταινία, μου άρεσε.\n",
}
ENCODINGS = ("cp1252", "mac_roman", "cp850", "cp437", "cp1250", "mac_latin2", "cp852", "iso8859-2", "cp1251", "koi8_r")
ENCODINGS = (*ENCODINGS, "cp866", "mac_cyrillic", "cp1253")
WRITTEN = [(name, e) for name, text in TEXTS.items() for e in ENCODINGS if text.encode(e, "ignore").decode(e) == text]


@pytest.mark.parametrize(("language", "encoding"), WRITTEN)
def test_a_text_has_its_letters_or_is_refused(language: str, encoding: str) -> None:
    sample = (TEXTS[language] * 4).encode(encoding)
    guessed = guess_encoding(sample)
    assert guessed is None or sample.decode(guessed) == TEXTS[language] * 4
    western = language in ("de", "fr", "es", "sv") and encoding in ("cp1252", "mac_roman", "cp850", "cp437")
    assert guessed is not None or not western


@pytest.mark.parametrize("damage", [b"\x81", b"\x8e", b"\x9f\x9f", b"\xff\xfe"])
def test_a_few_damaged_bytes_are_no_encoding(damage: bytes) -> None:
    assert guess_encoding(b"a long line of plain text, caf" + damage + b" and more of it\n") is None
