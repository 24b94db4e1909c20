"""The documentation's prose: lines of at most 120 characters, a short README, and no word that only we use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_layers import FOLDERS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(ROOT.glob("docs/**/*.md"))
README_LINES, LONGEST_LINE = 150, 120
PRIVATE_WORDS = (
    *("self-trained", "entrant", "even side", "surely behind", "surely better", "ways that count", "views that teach"),
    *("young model", "young language model", "of the box", "has read", "have read", "usual model", "lanes", "blend"),
    *("speaks for a word", "halves agree", "draws of labels", "least_steps", "readout", "evenness", "givenup"),
)
RENAMED = "### Renamed before the release"
"""The heading in CHANGELOG.md below which the old words are."""


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Numbers and lines of a Markdown text that are in no table, code block, picture or comment."""
    text = re.sub(r"<!--.*?-->", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        if not fenced and not fence and not line.startswith(("|", "    ", "![")):
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_lines_are_short_and_words_are_the_fields(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [number for number, line in prose(text) if len(line) > LONGEST_LINE] == []
    lowered = text.partition(RENAMED)[0].lower()
    assert [word for word in PRIVATE_WORDS if re.search(rf"\b{re.escape(word)}\b", lowered)] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


def test_contributing_has_the_folders_in_the_order_of_the_layer_test() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert (*rows, "__main__") == FOLDERS


def test_prose_is_told_from_tables_and_code() -> None:
    text = "a\n| b |\n```\nc\n```\n    d\n![e](f)\n<!-- g\nh -->\ni"
    assert [(number, line) for number, line in prose(text) if line] == [(1, "a"), (10, "i")]
