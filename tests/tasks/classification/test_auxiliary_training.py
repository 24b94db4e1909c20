"""Fine-tuning with the auxiliary language model: accumulation, nothing at λ = 0, what a run is known by, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from made_up_questions import write_questions
from made_up_reviews import reviews
from made_up_tags import sentences
from small_models import classifier, classifier_that_reads_on, copied, examples

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.core.identity import changed_keys
from textgraft.data.batch import Batch, pad
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.squad import read_squad
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model, build
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.classification.training import Plan, classifier_to_train
from textgraft.tasks.language_modeling.pretrain import load_pretrain_recipe
from textgraft.tasks.learning_rates import lr_find
from textgraft.tasks.question_answering.finetune import QAOptions, qa_finetune
from textgraft.tasks.tagging.finetune import TagOptions, tag_finetune
from textgraft.text.wordpiece import train as train_wordpiece
from textgraft.training.loop import Run
from textgraft.training.phases import Phase, Stage
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

LENGTHS = (9, 3, 14, 2, 6, 11, 4, 7)
AUXILIARY = """
name = "reads-on"
description = "For tests"
source = "none"

[finetune]
batch_size = 8
auxiliary_lm_weight = 0.5

[[finetune.phases]]
name = "all"
epochs = 2
lr = 0.01
"""


class Cut:
    """One epoch of eight texts of unequal length, `rows` at a time, in their order."""

    stateful = False

    def __init__(self, rows: int) -> None:
        generator = torch.Generator().manual_seed(0)
        texts = [torch.randint(2, 30, (n,), generator=generator).numpy() for n in LENGTHS]
        targets = torch.arange(len(texts)) % 2
        self.cut = [
            replace(pad(texts[i : i + rows], 1), targets=targets[i : i + rows]) for i in range(0, len(texts), rows)
        ]

    def length(self, epoch: int) -> int:
        return len(self.cut)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        return iter(self.cut[start:])

    def rate_scale(self, batch: Batch) -> float:
        return 1.0


def still(model: Model) -> Model:
    """Without what makes rows of a batch depend on each other or on chance: dropout and batch norms in training."""
    for module in model.modules():
        module.train = lambda mode=True, module=module: module  # type: ignore[method-assign]
    return model


def after_a_step(rows: int, accumulate: int) -> tuple[Model, float]:
    model = still(classifier_that_reads_on().eval())
    settings = Settings(precision="fp32", accumulate=accumulate, clip=None)
    run = Run(model, [Phase("p", 1, 1.0, schedule="constant", warmup=0.0, optimizer="sgd")], Cut(rows), settings)
    (step,) = list(run.steps())
    return model, step.loss


def test_two_batches_of_four_make_the_step_of_one_of_eight() -> None:
    """Lengths differ, so that a mean of the two batches' means of tokens would be another number."""
    whole, loss = after_a_step(8, 1)
    parts, same = after_a_step(4, 2)
    assert same == pytest.approx(loss, rel=1e-6)
    before, found = copied(still(classifier_that_reads_on())), copied(parts)
    for name, value in copied(whole).items():
        torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")
    assert not torch.equal(before["auxiliary.head.output.bias"], found["auxiliary.head.output.bias"])


def test_the_table_that_the_language_model_shares_hears_from_it() -> None:
    """A token that no text of the batch holds gets a gradient only by being one that did not come next."""
    with_it, without = classifier_that_reads_on(), classifier()
    batch = next(iter(Cut(8).batches(0)))
    absent = sorted(set(range(30)) - set(batch.ids.flatten().tolist()))
    for model, hears in ((with_it, True), (without, False)):
        model.eval().loss(batch).total.backward()
        gradient = model.encoder.embedding.weight.grad
        assert gradient is not None
        assert bool(gradient[absent].abs().sum() > 0) is hears


def test_while_the_encoder_is_frozen_the_language_model_is_too() -> None:
    model = classifier_that_reads_on()
    before = copied(model)
    for _ in Run(model, [Phase("head", 1, 0.1, trainable=1)], examples(), Settings(precision="fp32")).steps():
        pass
    moved = {name for name, value in copied(model).items() if not torch.equal(value, before[name])}
    assert moved
    assert all(name.startswith("head.") for name in moved)


def plan_of(lm: Path, weight: float) -> Plan:
    return Plan(
        language_model=loading.load_network(lm).model,
        from_scratch=False,
        stage=Stage(phases=(Phase("all", 1, 0.01),), auxiliary_lm_weight=weight),
        settings=Settings(precision="fp32"),
        labels=Labels("single", ("a", "b")),
        class_weights=None,
        pad_id=1,
    )


@pytest.mark.slow
def test_lambda_nothing_is_no_auxiliary_to_the_bit(tiny_lm: Path, tmp_path: Path) -> None:
    texts, labels = reviews(24, 1)
    train, test = Examples(texts, labels, "single"), Examples(*reviews(8, 2), "single")
    found = []
    for name, line in (
        ("without", ""),
        ("nothing", "auxiliary_lm_weight = 0.0"),
        ("some", "auxiliary_lm_weight = 0.5"),
    ):
        recipe = tmp_path / f"{name}.toml"
        recipe.write_text(AUXILIARY.replace("auxiliary_lm_weight = 0.5", line))
        options = FinetuneOptions(recipe=str(recipe), baselines=False, settings=Settings(precision="fp32"))
        done = finetune(train, tmp_path / name, model=tiny_lm, test=test, options=options, context=QUIET)
        found.append((done.folder / "model.safetensors").read_bytes())
        assert loading.load_network(done.folder).model.auxiliary is None
    without, nothing, some = found
    assert without == nothing != some
    assert len(some) == len(without)
    assert classifier_to_train(plan_of(tiny_lm, 0.0), 0).auxiliary is None


def test_a_run_is_known_by_it(tiny_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, auxiliary = Stage(), Stage(auxiliary_lm_weight=0.5)
    assert changed_keys(auxiliary.identity(), plain.identity()) == ["auxiliary_lm_weight"]

    def stopped(*_: object, **__: object) -> None:
        (tmp_path / "out.run" / "begun").write_bytes(b"")
        raise KeyboardInterrupt

    monkeypatch.setattr("textgraft.tasks.classification.finetune.train_member", stopped)
    train = Examples(*reviews(24, 1), "single")
    for line, error in (
        ("auxiliary_lm_weight = 0.5", KeyboardInterrupt),
        ("", UserError),
        ("auxiliary_lm_weight = 0.5", KeyboardInterrupt),
    ):
        (tmp_path / "r.toml").write_text(AUXILIARY.replace("auxiliary_lm_weight = 0.5", line))
        options = FinetuneOptions(recipe=str(tmp_path / "r.toml"), baselines=False)
        with pytest.raises(error) as caught:
            finetune(train, tmp_path / "out", model=tiny_lm, test=train, options=options, context=QUIET)
        assert error is KeyboardInterrupt or "differs in: recipe.auxiliary_lm_weight." in str(caught.value)


@pytest.mark.slow
def test_the_rate_finder_reads_on_too(tiny_lm: Path, tmp_path: Path) -> None:
    train = Examples(*reviews(24, 1), "single")
    losses = []
    for line in ("auxiliary_lm_weight = 0.5", ""):
        (tmp_path / "r.toml").write_text(AUXILIARY.replace("auxiliary_lm_weight = 0.5", line))
        found = lr_find(train, model=tiny_lm, recipe=str(tmp_path / "r.toml"), steps=20, settings=Settings(seed=1))
        losses.append(found.steps[0].loss)
    assert losses[0] > losses[1] + 0.5  # half of the nats of a token


def test_gpts_recipe_is_the_papers() -> None:
    stage = load_recipe("gpt").finetune
    (phase,) = stage.phases
    assert (stage.auxiliary_lm_weight, stage.batch_size, stage.clip) == (0.5, 32, 1.0)
    assert (phase.epochs, phase.lr, phase.schedule, phase.warmup, phase.betas) == (
        3,
        6.25e-5,
        "linear",
        0.002,
        (0.9, 0.999),
    )


def test_where_it_has_no_meaning_it_is_refused(tmp_path: Path, tiny_recipe: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(AUXILIARY + "[adapt]\nauxiliary_lm_weight = 0.5\n")
    with pytest.raises(UserError, match=r"r\.toml.*for classifiers of texts, pairs and choices"):
        load_recipe(str(path))
    path.write_text(AUXILIARY.replace("0.5", "-0.5"))
    with pytest.raises(UserError, match=r"auxiliary_lm_weight is -0\.5"):
        load_recipe(str(path))
    path.write_text(tiny_recipe.read_text().replace("batch_size = 8", "batch_size = 8\nauxiliary_lm_weight = 0.5"))
    with pytest.raises(UserError, match="for classifiers of texts"):
        load_pretrain_recipe(str(path))
    asked, tagged = read_squad(write_questions(tmp_path / "q.json", 20, 0)), sentences(20, 0)
    for finetuned in (
        lambda: qa_finetune(asked, tmp_path / "out", options=QAOptions(recipe="gpt"), context=QUIET),
        lambda: tag_finetune(tagged, tmp_path / "out", options=TagOptions(recipe="gpt"), context=QUIET),
    ):
        with pytest.raises(UserError, match=r"gpt: .*for classifiers of texts"):
            finetuned()
    assert not (tmp_path / "out.run").exists()


def test_bert_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    texts, labels = reviews(24, 1)
    tokenizer = train_wordpiece(texts, vocab_size=120)
    shape = {"embedding_dim": 8, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 16, "max_length": 64}
    encoder = {"name": "bert", "vocab_size": tokenizer.vocab_size, **shape}
    head = {"name": "masked_language_model", "vocab_size": tokenizer.vocab_size, "input_dim": 8}
    run = {"name": "bert", "stage": "pretrain"}
    bert = artifact.save(Artifact(build({"encoder": encoder, "head": head}), tokenizer, None, run), tmp_path / "bert")
    options = FinetuneOptions(recipe="gpt")
    train = Examples(texts, labels, "single")
    with pytest.raises(UserError, match=r"auxiliary: .*looks both ways.*another recipe"):
        finetune(train, tmp_path / "out", model=bert, test=train, options=options, context=QUIET)
    assert not (tmp_path / "out.run").exists()
