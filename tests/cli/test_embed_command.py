"""`textgraft embed` and `convert` on a model that says how it pools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from made_up_questions import encoder
from programs import Program

from textgraft.models import artifact
from textgraft.models.sentence_embedding import SentenceEmbedding


def test_embed_says_which_prompts_there_are(run: Program, tmp_path: Path) -> None:
    """A name that the model knows, another, and a folder for sentence-transformers with the same prompts."""
    embedding = SentenceEmbedding(normalize=True, prompts={"query": "the "}, default_prompt="query")
    artifact.save(replace(encoder("bert"), embedding=embedding), tmp_path / "mine")
    (tmp_path / "texts.txt").write_text("film\nwhat is it?\n")
    written = []
    for number, prompt in enumerate((None, "query", "the ", "")):
        out = tmp_path / f"{number}.npy"
        asked = () if prompt is None else ("--prompt", prompt)
        run("embed", tmp_path / "mine", tmp_path / "texts.txt", "--out", out, *asked)
        written.append(np.load(out))
    np.testing.assert_allclose(np.linalg.norm(written[0], axis=1), 1, atol=1e-5)
    assert np.array_equal(written[0], written[1])
    assert np.array_equal(written[0], written[2])
    assert not np.array_equal(written[0], written[3])
    embed = ("embed", tmp_path / "mine", tmp_path / "texts.txt", "--out", tmp_path / "no.npy", "--prompt", "passage")
    run(*embed).mistake("this model has no prompt 'passage'", "query ('the ')")
    run("convert", tmp_path / "mine", "--to", "sentence-transformers", "--out", tmp_path / "st")
    run("embed", f"hf:{tmp_path / 'st'}", tmp_path / "texts.txt", "--out", tmp_path / "st.npy")
    np.testing.assert_allclose(np.load(tmp_path / "st.npy"), written[0], atol=1e-6)
