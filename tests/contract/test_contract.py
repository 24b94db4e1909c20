"""What every encoder under every head must keep, whatever family it is of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import families
import pytest
import torch
from families import (
    CASES,
    ENCODERS,
    HEADS,
    LENGTHS,
    QUICK,
    RECURRENT,
    STATEFUL,
    TOKENIZER,
    V,
    counts_targets,
    drawn_batch,
    embedded,
    gradients,
    made,
    reached,
    shows_positions,
    some_rows,
    tied_head,
    without_truncation,
)

from textgraft.data.batch import IGNORE, Batch
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model, build
from textgraft.nn import layer_aggregation
from textgraft.nn.cpu.precision import computing_in

every_model = pytest.mark.parametrize(
    ("encoder", "head"), [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES]
)
every_encoder = pytest.mark.parametrize("encoder", ENCODERS)
every_stateful = pytest.mark.parametrize("encoder", STATEFUL)
every_recurrent = pytest.mark.parametrize("encoder", RECURRENT)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def windows(batch: Batch, borders: list[int], direction: str) -> list[Batch]:
    """The batch cut at `borders` into windows, in the order in which `direction` reads them."""
    cuts = [slice(a, b) for a, b in zip([0, *borders], [*borders, batch.ids.shape[1]], strict=True)]
    assert batch.targets is not None
    parts = [replace(batch, ids=batch.ids[:, c], mask=batch.mask[:, c], targets=batch.targets[:, c]) for c in cuts]
    for name in ("segments", "vectors"):
        whole = getattr(batch, name)
        if whole is not None:
            parts = [replace(part, **{name: whole[:, c]}) for part, c in zip(parts, cuts, strict=True)]
    return parts[::-1] if direction == "right" else parts


def unread(model: Model, batch: Batch) -> set[str]:
    """The parameters of layers above the one that the head reads, if it reads a single lower one."""
    index = {"first": 0, "second-to-last": -2}.get(getattr(model.head.config, "layer_aggregation", "last"))
    if index is None:
        return set()
    named = {f"encoder.{name}": p for name, p in model.encoder.named_parameters()}
    layer = model.encoder(batch, keep="all").layers[index]
    found = torch.autograd.grad(layer.sum(), list(named.values()), allow_unused=True)
    above = {name for name, gradient in zip(named, found, strict=True) if gradient is None}
    assert above
    return above


@every_model
def test_batch_equals_one_by_one(encoder: str, head: str) -> None:
    model = made(encoder, head)
    batch = drawn_batch(model)
    together = model(batch)
    for row, length in enumerate(LENGTHS):
        alone = model(some_rows(batch, slice(row, row + 1)))[0]
        seen = together[row, :length] if shows_positions(model) else together[row]
        torch.testing.assert_close(seen, alone, **CLOSE)


@every_model
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_padding_is_invisible(encoder: str, head: str, training: bool) -> None:
    """Three more columns of arbitrary tokens change neither the loss nor any gradient."""
    results = []
    for extra in (0, 3):
        model = made(encoder, head).train(training)  # anew: hard attention keeps a moving average of its losses
        torch.manual_seed(2)  # sampled softmax draws its sample
        results.append(gradients(model, drawn_batch(model, extra=extra)))
    (total, count, found), (padded_total, padded_count, padded) = results
    assert count == padded_count
    torch.testing.assert_close(padded_total, total, **CLOSE)
    assert found.keys() == padded.keys()
    largest = max(float(gradient.abs().max()) for gradient in found.values())
    close = CLOSE | {"atol": 1e-5 * max(1.0, largest)}  # one that normalisation makes 0 is rounding of the others
    for name in found:
        torch.testing.assert_close(padded[name], found[name], **close, msg=lambda m, name=name: f"{name}: {m}")


@every_model
def test_losses_of_parts_add_up(encoder: str, head: str) -> None:
    """Loss is (sum, count): two unequal halves give the sum, the count and the gradients of the whole."""
    model = made(encoder, head)
    batch = drawn_batch(model)
    total, count, found = gradients(model, batch)
    parts_total, parts_count, of_parts = gradients(model, some_rows(batch, slice(0, 1)), some_rows(batch, slice(1, 4)))
    assert parts_count == count
    assert count == (int((batch.targets != IGNORE).sum()) if counts_targets(model) else len(LENGTHS))
    if HEADS[head]["name"] == "language_model":
        assert count == int(batch.mask.sum())
    torch.testing.assert_close(parts_total, total, **CLOSE)
    for name in found:
        torch.testing.assert_close(of_parts[name], found[name], **CLOSE, msg=lambda m, name=name: f"{name}: {m}")


@every_model
def test_every_parameter_is_in_one_layer_group_and_learns(
    encoder: str, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_aggregation, "LAYER_DROPOUT", 0.0)  # a layer that is dropped by chance learns nothing
    model = made(encoder, head, dropout=1.0).train()
    groups = model.layer_groups()
    grouped = [id(p) for group in groups for p in group.parameters]
    assert sorted(grouped) == sorted({id(p) for p in model.parameters()})
    assert groups[-1].name == "head"
    assert len({group.name for group in groups}) == len(groups)
    of_encoder = [id(p) for group in model.encoder.layer_groups() for p in group.parameters]
    assert sorted(of_encoder) == sorted(id(p) for p in model.encoder.parameters())
    batch = drawn_batch(model, (12, 12, 12, 12))
    _, _, found = gradients(model, batch)
    assert found.keys() == dict(model.named_parameters()).keys() - unread(model, batch)
    assert all(gradient.abs().sum() > 0 for gradient in found.values())


@every_model
def test_saving_and_loading_is_exact(encoder: str, head: str, tmp_path: Path) -> None:
    model = made(encoder, head, dropout=1.0)
    loaded = loading.load_network(artifact.save(Artifact(model, TOKENIZER), tmp_path / "model")).model
    assert loaded.describe() == model.describe()
    values, found = model.values(), loaded.values()
    assert found.keys() == values.keys()
    assert all(torch.equal(found[name], value) for name, value in values.items())
    batch = drawn_batch(model)
    assert torch.equal(loaded(batch), model(batch))
    halved = loading.load_network(
        artifact.save(Artifact(model, TOKENIZER), tmp_path / "half", half=True)
    ).model.values()
    for name, value in values.items():
        rounded = value.half().to(value.dtype) if value.is_floating_point() else value
        assert torch.equal(halved[name], rounded), name


@every_model
def test_describes_what_builds_it(encoder: str, head: str) -> None:
    model = made(encoder, head, dropout=0.5)
    description = json.loads(json.dumps(model.describe()))
    again = build(description)
    assert again.describe() == description
    assert {n: v.shape for n, v in again.values().items()} == {n: v.shape for n, v in model.values().items()}


@every_model
def test_the_same_seed_gives_the_same_bits_and_another_does_not(encoder: str, head: str) -> None:
    model = made(encoder, head, dropout=1.0)
    again = made(encoder, head, dropout=1.0).values()
    assert all(torch.equal(again[name], value) for name, value in model.values().items())
    batch = drawn_batch(model)
    results = []
    for seed in (3, 3, 4):
        fresh = made(encoder, head, dropout=1.0).train()
        torch.manual_seed(seed)
        results.append(gradients(fresh, batch)[::2])
    (total, found), (same_total, same), (other_total, _) = results
    assert torch.equal(total, same_total)
    assert all(torch.equal(found[name], same[name]) for name in found)
    assert not torch.equal(total, other_total)


@every_model
def test_evaluation_is_deterministic(encoder: str, head: str) -> None:
    """Dropout acts in training only: whatever the seed and the rates, evaluation gives the same bits."""
    with_dropout, without = made(encoder, head, dropout=1.0), made(encoder, head)
    batch = drawn_batch(without)
    first = with_dropout.loss(batch).total
    torch.manual_seed(9)
    assert torch.equal(with_dropout.loss(batch).total, first)
    assert torch.equal(without.loss(batch).total, first)


@every_model
def test_bf16_is_close_to_fp32(encoder: str, head: str) -> None:
    model = made(encoder, head)
    batch = drawn_batch(model)
    total, _, found = gradients(model, batch)
    with computing_in("bf16"):
        low_total, _, low = gradients(model, batch)
    torch.testing.assert_close(low_total, total, rtol=0.02, atol=0.02)
    assert all(gradient.dtype == torch.float32 for gradient in low.values())
    if HEADS[head].get("reach") == "hard":
        return  # of weights so alike, rounding may make another the highest
    if (encoder, HEADS[head]["name"]) == ("elmo-without-skips", "choice"):
        return  # options have nearly the same vectors, whose rounding batch normalisation enlarges
    one, other = (torch.cat([g.flatten() for g in grads.values()]) for grads in (found, low))
    # What is learned from options is learned from differences between them, in which rounding weighs more.
    least = 0.98 if HEADS[head]["name"] == "choice" else 0.995
    assert torch.nn.functional.cosine_similarity(one, other, dim=0) > least


@every_model
def test_nothing_is_kept_on_the_modules(encoder: str, head: str) -> None:
    """State goes in and out: after a step no module holds a tensor that is no parameter or buffer of it."""
    model = made(encoder, head, dropout=1.0).train()
    gradients(model, drawn_batch(model))
    for module in model.modules():
        held = [name for name, value in vars(module).items() if isinstance(value, torch.Tensor)]
        assert held == []


@every_stateful
def test_state_carries_windows_over(encoder: str) -> None:
    """Windows with the state handed on equal one long text: vectors, final state and loss."""
    model = without_truncation(made(encoder, tied_head(encoder)))
    batch = drawn_batch(model, (11, 11))
    nothing = model.encoder.initial_state(2)
    whole, whole_loss = model.encoder(batch, nothing), model.loss(batch)
    tops, state, loss_state, total = [], nothing, nothing, torch.zeros(())
    for window in windows(batch, [4, 5], model.encoder.direction):
        encoded = model.encoder(window, state)
        state = encoded.state
        tops.append(encoded.top)
        loss = model.loss(window, loss_state)
        loss_state, total = loss.state, total + loss.total
    tops = tops[::-1] if model.encoder.direction == "right" else tops
    torch.testing.assert_close(torch.cat(tops, dim=1), whole.top, **CLOSE)
    torch.testing.assert_close(state, whole.state, **CLOSE)
    torch.testing.assert_close(total, whole_loss.total, **CLOSE)


@every_encoder
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_a_state_that_nobody_asks_for_does_not_grow(encoder: str, training: bool) -> None:
    """Training and evaluation hand on what `loss` gives: after three windows it is as large as after one, or none."""
    model = made(encoder, tied_head(encoder)).train(training)
    sizes, state = [], None
    for window in windows(drawn_batch(model, (12, 12)), [4, 8], model.encoder.direction):
        state = model.loss(window, state).state
        sizes.append([t.numel() for layer in state or () for t in layer])
    assert sizes[0] == sizes[1] == sizes[2]


@every_encoder
def test_beginnings_padded_on_the_left_go_on_as_if_alone(encoder: str) -> None:
    """Read together and continued step by step, texts of unequal length get the vectors that each gets by itself."""
    model = without_truncation(made(encoder, tied_head(encoder)))
    if model.encoder.direction != "left":
        pytest.skip("reads from the right: there is nothing to go on to")
    lengths, steps = (7, 3, 7, 1), 4
    texts = drawn_batch(model, tuple(n + steps for n in lengths))
    ids = torch.randint(V, (4, 8))  # one column more than need be, and padding that is any token
    mask = torch.arange(8) >= 8 - torch.tensor(lengths)[:, None]
    for row, length in enumerate(lengths):
        ids[row, 8 - length :] = texts.ids[row, :length]
    encoded = model.encoder.begin(Batch(ids, mask))
    found = [encoded.top[:, -1]]
    for step in range(steps):
        column = torch.stack([texts.ids[row, length + step] for row, length in enumerate(lengths)])[:, None]
        encoded = model.encoder(Batch(column, torch.ones_like(column, dtype=torch.bool)), encoded.state)
        found.append(encoded.top[:, -1])
    for row, length in enumerate(lengths):
        alone = model.encoder(some_rows(texts, slice(row, row + 1))).top[0, length - 1 :]
        torch.testing.assert_close(torch.stack([top[row] for top in found]), alone, **CLOSE)


@every_recurrent
def test_gradients_stop_where_the_config_truncates(encoder: str) -> None:
    """`truncate` changes no value; the gradients are those of windows whose states are detached."""
    model = made(encoder, "lm-full-untied")
    size = model.encoder.config.truncate
    length = 2 * size + 1
    batch = drawn_batch(model, (length, length))
    total, _, found = gradients(model, batch)
    model.zero_grad()
    model.encoder.config = replace(model.encoder.config, truncate=0)
    right = model.encoder.direction == "right"
    borders = [1, 1 + size] if right else [size, 2 * size]  # counted in reading order
    state, window_total = None, torch.zeros(())
    for window in windows(batch, borders, model.encoder.direction):
        loss = model.loss(window, state)
        assert loss.state is not None
        loss.total.backward()
        window_total = window_total + loss.total.detach()
        state = tuple(tuple(t.detach() for t in layer) for layer in loss.state)
    torch.testing.assert_close(window_total, total, **CLOSE)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, found[name], **CLOSE, msg=lambda m, name=name: f"{name}: {m}")
    whole = gradients(model, batch)[2]
    assert not torch.allclose(whole["encoder.embedding.weight"], found["encoder.embedding.weight"], rtol=1e-3)


@every_encoder
@pytest.mark.parametrize("position", [0, 4, 8])
def test_looks_only_where_its_direction_allows(encoder: str, position: int) -> None:
    """Another token at one position changes the vectors there and further on in reading order, and no other."""
    model = made(encoder, "single")
    batch = drawn_batch(model, (9, 9, 9))
    changed = batch.ids.clone()
    changed[:, position] = (changed[:, position] + 1) % V
    vectors = None if batch.vectors is None else families.VECTORS[changed]
    before, after = model.encoder(batch).top, model.encoder(replace(batch, ids=changed, vectors=vectors)).top
    moved = (before != after).any(dim=2).any(dim=0)
    positions = torch.arange(9)
    match model.encoder.direction:
        case "left":
            allowed = positions >= position
        case "right":
            allowed = positions <= position
        case _:
            allowed = torch.ones(9, dtype=torch.bool)
    assert torch.equal(moved, allowed & reached(encoder, position, positions))


@every_encoder
def test_keep_all_shows_every_layer_bottom_to_top(encoder: str) -> None:
    model = made(encoder, "single")
    batch = drawn_batch(model)
    shown = model.encoder(batch, keep="all")
    assert len(shown.layers) == len([g for g in model.encoder.layer_groups() if g.name != "pooler"])
    assert tuple(layer.shape[2] for layer in shown.layers) == model.encoder.widths
    assert torch.equal(shown.layers[-1], shown.top)
    assert torch.equal(shown.top, model.encoder(batch).top)
    assert shown.top.shape == (*batch.ids.shape, model.encoder.output_dim)
    torch.testing.assert_close(shown.layers[0][batch.mask], embedded(model, batch)[batch.mask])


def test_the_matrix_holds_every_family() -> None:
    """A family that is registered but not in the matrix would go untested."""
    from textgraft.models import model
    from textgraft.nn.layer_aggregation import LAYER_AGGREGATIONS
    from textgraft.nn.pooling import POOLINGS
    from textgraft.nn.softmax import OUTPUT_LAYERS

    assert {config["name"] for config in ENCODERS.values()} == set(model.ENCODERS)
    methods = {config["name"]: made(name, tied_head(name)).encoder.method for name, config in ENCODERS.items()}
    assert {name for name, method in methods.items() if method == "ulmfit"} == {"awd_lstm"}
    read = {config.get("layer_aggregation", "last") for config in families.HEADS.values()}
    assert read == set(LAYER_AGGREGATIONS)
    assert {config.get("layer_aggregation", "last") for _, head in CASES for config in [HEADS[head]]} == read
    taught = set(model.HEADS) - {"features"}  # which has no loss
    assert {config["name"] for config in families.HEADS.values()} == taught
    assert {config.get("output_layer") for config in families.HEADS.values()} - {None} == set(OUTPUT_LAYERS)
    heads = [config for config in families.HEADS.values() if config["name"] == "classification"]
    poolings = {name for config in heads for name in config.get("pooling", "concat").split("+")}
    assert poolings == {*POOLINGS, "pooled"}
