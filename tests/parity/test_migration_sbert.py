"""Every row of docs/migration/sentence_transformers.md."""

import inspect

import numpy as np
import pytest

import keras_dml as dml
from tests.parity.tables import FOLDER, code, rows

pytest.importorskip("sentence_transformers")

import tensorflow as tf
import torch
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.losses.matryoshka import shrink
from sentence_transformers.util import dot_score

from tests.parity.peer import SHAPES, compare, embeddings, ours

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PAGE = "sentence_transformers.md"
LABELS, DIM = SHAPES["16x8, 4 a class"]
COUNT = 9


def evaluated(cell: str):
    names = {
        "dml": dml, "mining": dml.losses.mining, "losses": losses,
        "dot_score": dot_score, "model": torch.nn.Identity(),
        "TDM": losses.TripletDistanceMetric,
    }  # fmt: skip
    return eval(code(cell), names)  # noqa: S307


def columns(number: int) -> np.ndarray:
    """(number, COUNT, D), not unit."""
    rows_ = np.arange(COUNT)
    return np.stack(
        [1.5 * embeddings(rows_, DIM, seed=s) for s in range(number)]
    )


def theirs(other, x, labels=None):
    """Value and gradient of columns of embeddings, (n, N, D)."""
    x = torch.tensor(x, requires_grad=True)
    labels = None if labels is None else torch.as_tensor(labels)
    if hasattr(other, "compute_loss_from_embeddings"):
        value = other.compute_loss_from_embeddings(list(x), labels)
    else:
        value = other.calculate_loss([[column] for column in x])
    value.backward()
    return float(value.detach()), [x.grad.numpy()]


def with_references(mine, x, labels, ref_labels=None):
    """The same of ours: the first column with all others as references."""
    tensor = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        refs = tf.reshape(tensor[1:], (-1, x.shape[-1]))
        values = mine.per_example(labels, tensor[0], ref_labels, refs)
        value = tf.reduce_mean(values)
    return float(value), [tape.gradient(value, tensor).numpy()]


@pytest.mark.parametrize("row", rows(PAGE, "Labeled examples"))
def test_losses_of_labeled_examples_match(row):
    labels, dim = SHAPES["21x16, unbalanced"]
    x = 2 * embeddings(labels, dim)
    other, mine = map(evaluated, row)
    value, (gradient,) = theirs(other, x[None], labels)
    compare(ours(mine, labels, x), (value, [gradient[0]]))


@pytest.mark.parametrize("row", rows(PAGE, "Pairs"))
def test_losses_of_pairs_match(row):
    other, mine = map(evaluated, row)
    x, ids = columns(2), np.arange(COUNT)
    compare(with_references(mine, x, ids, ids), theirs(other, x))


def test_pairs_with_hard_negatives_match():
    other, mine = map(evaluated, rows(PAGE, "Pairs")[0])
    x = columns(3)
    result = with_references(mine, x, np.arange(COUNT), np.arange(2 * COUNT))
    compare(result, theirs(other, x))


def test_pairs_in_both_directions_match():
    other = losses.MultipleNegativesRankingLoss(
        None,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )
    mine = evaluated(rows(PAGE, "Pairs")[0][1])
    x, ids = columns(2), np.arange(COUNT)
    to, fro = (with_references(mine, x[::s], ids, ids) for s in (1, -1))
    gradient = (to[1][0] + fro[1][0][::-1]) / 2
    compare(((to[0] + fro[0]) / 2, [gradient]), theirs(other, x))


@pytest.mark.parametrize("row", rows(PAGE, "Pairs and labels 0 or 1"))
def test_losses_of_labeled_pairs_match(row):
    other, mine = map(evaluated, row)
    x, labels = columns(2), np.arange(COUNT) % 2
    relations = np.full((COUNT, COUNT), -1)
    np.fill_diagonal(relations, labels)
    compare(with_references(mine, x, relations), theirs(other, x, labels))


@pytest.mark.parametrize("row", rows(PAGE, "Triplets"))
def test_losses_of_triplets_match(row):
    other, mine = map(evaluated, row)
    x = columns(3)
    relations = np.full((COUNT, 2 * COUNT), -1)
    np.fill_diagonal(relations[:, :COUNT], 1)
    np.fill_diagonal(relations[:, COUNT:], 0)
    compare(with_references(mine, x, relations), theirs(other, x))


@pytest.mark.parametrize("row", rows(PAGE, "Matryoshka"))
def test_matryoshka_matches(row):
    other, mine = map(evaluated, row)
    x = torch.tensor(embeddings(LABELS, DIM), requires_grad=True)
    value = sum(
        other.compute_loss_from_embeddings(
            [shrink(x, dim)], torch.tensor(LABELS)
        )
        for dim in mine.dims
    )
    value.backward()
    compare(
        ours(mine, LABELS, x.detach().numpy()),
        (float(value.detach()), [x.grad.numpy()]),
    )


def test_every_loss_is_on_the_page():
    text = (FOLDER / PAGE).read_text(encoding="utf-8")
    names = {
        name
        for name in losses.__all__
        if inspect.isclass(getattr(losses, name)) and name.endswith("Loss")
    }
    assert len(names) > 20
    assert not {name for name in names if name not in text}
