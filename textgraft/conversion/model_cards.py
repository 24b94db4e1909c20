"""The header of a model card of a hub: licence and languages."""

from __future__ import annotations

import re
from pathlib import Path

CARD = "README.md"


def licence_and_language(folder: Path) -> dict[str, str | None]:
    """`licence` and `language` by the card in `folder`; None where it states none, or there is no card."""
    return facts((folder / CARD).read_bytes() if (folder / CARD).is_file() else b"")


def facts(card: bytes) -> dict[str, str | None]:
    """`licence` and `language` by a card's content."""
    head = read_head(card.decode("utf-8", errors="replace"))
    licences = head.get("license", [])
    if licences == ["other"]:
        licences = head.get("license_name", licences)
    return {"licence": ", ".join(licences) or None, "language": ", ".join(head.get("language", [])) or None}


def read_head(card: str) -> dict[str, list[str]]:
    """Settings in the header of a model card with their values; nested ones are left out."""
    header = re.match(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", card, re.DOTALL | re.MULTILINE)
    head: dict[str, list[str]] = {}
    key = ""
    for line in header[1].splitlines() if header else ():
        setting = re.fullmatch(r"([\w-]+):(?:\s+(.*?))?\s*", line)
        item = re.fullmatch(r"\s*-\s+([^:]+?)\s*", line)
        if setting:
            key, value = setting[1], setting[2] or ""
            values = value[1:-1].split(",") if value.startswith("[") and value.endswith("]") else [value]
            head[key] = [v.strip(" \"'") for v in values if v.strip(" \"'")]
        elif item and key:
            head[key].append(item[1].strip("\"'"))
    return head
