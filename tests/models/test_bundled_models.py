"""The models of the box: whole, small enough, and with a card that says how they were made."""

from __future__ import annotations

from pathlib import Path

import pytest

from textgraft.models.loading import load_network
from textgraft.word_embeddings.formats import load_vectors

BOX = Path(__file__).parents[2] / "pretrained"
FOLDERS = sorted(path.parent for path in BOX.glob("*/config.json"))
LARGEST = 25 << 20


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_model_of_the_box_opens_by_its_name_and_its_card_tells_its_making(folder: Path) -> None:
    vectors = (folder / "vectors.safetensors").exists()
    run = load_vectors(folder.name).run if vectors else load_network(folder.name).run  # which verify every file's hash
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert sum(path.stat().st_size for path in folder.iterdir()) <= LARGEST
    assert run["name"] == folder.name
    for part in (str(run["command"]), run["licence"], *run["data"]["sources"], "## Results", "## Limits"):
        assert part in card


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_readme_names_it(folder: Path) -> None:
    assert f"`{folder.name}`" in (BOX.parent / "README.md").read_text(encoding="utf-8")
