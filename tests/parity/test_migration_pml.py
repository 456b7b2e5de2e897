"""Every row of docs/migration/pytorch_metric_learning.md."""

import re

import keras
import numpy as np
import pytest

import keras_dml as dml
from tests.parity.tables import FOLDER, blocks, code, rows

pytest.importorskip("pytorch_metric_learning")

import tensorflow as tf
import torch
from pytorch_metric_learning import (
    distances,
    losses,
    miners,
    reducers,
    regularizers,
    samplers,
    testers,
    trainers,
)

from tests.parity.peer import SHAPES, compare, embeddings, ours, theirs

pytestmark = [
    pytest.mark.peers,
    # Their histogram loss and their SphereFace.
    pytest.mark.filterwarnings(
        "ignore:Using a non-tuple sequence for multidimensional indexing"
    ),
    pytest.mark.filterwarnings("ignore:__array_wrap__ must accept"),
    pytest.mark.filterwarnings("ignore:Values of Tp or Tn are too high"),
]

PAGE = "pytorch_metric_learning.md"
LABELS, DIM = SHAPES["16x8, 4 a class"]
BATCH = "21x16, unbalanced"
CLASSES = 16
PAIRS = "Losses on pairs and triplets"


def evaluated(cell: str, dim: int = DIM):
    """A fresh object, of the code of a cell."""
    names = {
        "C": CLASSES, "D": dim, "dml": dml, "np": np,
        "mining": dml.losses.mining, "distances": distances,
        "losses": losses, "miners": miners, "reducers": reducers,
    }  # fmt: skip
    return eval(code(cell), names)  # noqa: S307


@pytest.mark.parametrize("row", [*rows(PAGE, PAIRS), *rows(PAGE, "Wrappers")])
def test_losses_of_the_page_match(row):
    labels, dim = SHAPES[BATCH]
    x = embeddings(labels, dim)
    other, mine = map(evaluated, row)
    compare(ours(mine, labels, x), theirs(other, labels, x))


def check_angular(other, mine):
    x = embeddings(LABELS, DIM)
    value, (gradient,) = theirs(other, LABELS, x)
    gradient -= (gradient * x).sum(axis=1, keepdims=True) * x
    compare(ours(mine, LABELS, x), (value, [gradient]))


def check_instance(other, mine):
    labels = np.arange(16)
    x = embeddings(labels, DIM)
    compare(ours(mine, labels, x), theirs(other, labels, x))


def check_smooth_ap(other, mine):
    x = embeddings(LABELS, DIM)
    compare(ours(mine, LABELS, x), theirs(other, LABELS, x))


def check_ranked_list(other, mine):
    x = embeddings(LABELS, DIM)
    result = theirs(other, LABELS, x)
    compare(ours(mine, LABELS, x), result, rtol=3e-4)


def two_views():
    classes = np.arange(9)
    return classes, *(2 * embeddings(classes, DIM, seed=s) for s in (0, 1))


def check_n_pairs(other, mine):
    classes, x, y = two_views()
    both = torch.tensor(np.concatenate([x, y]), requires_grad=True)
    nothing = torch.zeros(0, dtype=int)
    pairs = torch.arange(9), torch.arange(9) + 9, nothing, nothing
    value = other(both, torch.tensor(np.tile(classes, 2)), pairs)
    value.backward()
    compare_views(mine, (classes, x, y), value, both.grad)


def check_vicreg(other, mine):
    classes, x, y = two_views()
    both = torch.tensor(np.stack([x, y]), requires_grad=True)
    value = other(both[0], ref_emb=both[1])
    value.backward()
    compare_views(mine, (classes, x, y), value, both.grad)


def compare_views(mine, views, value, gradient):
    classes, *tensors = views[0], *map(tf.constant, views[1:])
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        values = mine.per_example(classes, tensors[0], classes, tensors[1])
        total = tf.reduce_mean(values)
    gradients = np.concatenate(
        [g.numpy() for g in tape.gradient(total, tensors)]
    )
    expected = gradient.numpy().reshape(gradients.shape)
    compare((float(total), [gradients]), (float(value.detach()), [expected]))


CONDITIONS = {
    "AngularLoss": check_angular,
    # tests/parity/test_losses.py has it, over several steps.
    "DynamicSoftMarginLoss": None,
    "InstanceLoss": check_instance,
    "NPairsLoss": check_n_pairs,
    "RankedListLoss": check_ranked_list,
    "SmoothAPLoss": check_smooth_ap,
    "VICRegLoss": check_vicreg,
}


def test_conditional_losses_are_all_checked():
    names = {name_of(row[0]) for row in rows(PAGE, PAIRS, 3)}
    assert names == set(CONDITIONS)


@pytest.mark.parametrize(
    "row",
    [r for r in rows(PAGE, PAIRS, 3) if "DynamicSoft" not in r[0]],
)
def test_conditional_losses_match(row):
    check = CONDITIONS[name_of(row[0])]
    check(*map(evaluated, row[:2]))


def name_of(cell: str) -> str:
    return re.match(r"`\w+\.(\w+)", cell)[1]


@pytest.mark.parametrize("row", rows(PAGE, "Losses with weights"))
def test_losses_with_weights_match(row):
    x = embeddings(LABELS, DIM)
    other, mine = map(evaluated, row)
    (parameter,) = other.parameters()
    proxies = 1.5 * embeddings(np.zeros(mine.num_proxies), DIM, seed=1)
    transposed = tuple(parameter.shape) != proxies.shape
    with torch.no_grad():
        parameter.copy_(torch.tensor(proxies.T if transposed else proxies))
    value, gradients = theirs(other, LABELS, x, parameter)
    if transposed:
        gradients[1] = gradients[1].T
    compare(ours(mine, LABELS, x, proxies), (value, gradients))


@pytest.mark.parametrize("row", rows(PAGE, "Miners", 3))
def test_miners_match(row):
    labels, dim = SHAPES[BATCH]
    x = embeddings(labels, dim)
    other, miner, mine = map(evaluated, row)
    indices = miner(torch.tensor(x), torch.tensor(labels))
    compare(ours(mine, labels, x), theirs(other, labels, x, None, indices))


@pytest.mark.parametrize("row", rows(PAGE, "Distances"))
def test_distances_match(row):
    other, name = map(evaluated, row)
    x, refs = (embeddings(np.arange(n), DIM, seed=n) for n in (6, 9))
    np.testing.assert_allclose(
        dml.losses.distances.get(name).pairwise(x, refs),
        other(torch.tensor(x), torch.tensor(refs)),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("row", rows(PAGE, "Reducers"))
def test_reducers_match(row):
    reducer, name = map(evaluated, row)
    x = embeddings(LABELS, DIM)
    other = losses.TripletMarginLoss(0.2, reducer=reducer)
    mine = dml.losses.TripletLoss(
        0.2, distance="euclidean", mining="all", reduction=name
    )
    compare(ours(mine, LABELS, x), theirs(other, LABELS, x))


def test_self_supervised_loss_matches():
    x, y = two_views()[1:]
    other = losses.SelfSupervisedLoss(losses.NTXentLoss())
    mine = dml.losses.NTXentLoss(0.07)(
        np.tile(np.arange(9), 2), np.concatenate([x, y])
    )
    expected = other(torch.tensor(x), torch.tensor(y))
    assert float(mine) == pytest.approx(float(expected), rel=1e-5)


def test_samplers_give_batches_of_equal_make_up():
    labels = np.repeat(np.arange(20), 10)
    sampler = samplers.MPerClassSampler(labels, m=4, batch_size=32)
    mine = dml.data.ClassBalanced(labels, images_per_class=4, batch_size=32)
    for rows_ in (list(sampler)[:32], mine.plan(0)[0]):
        counts = np.unique(labels[rows_], return_counts=True)[1]
        np.testing.assert_array_equal(counts, np.full(8, 4))


def test_metrics_of_the_page_match():
    from pytorch_metric_learning.utils.accuracy_calculator import (
        AccuracyCalculator,
    )

    names = [list(map(evaluated, r)) for r in rows(PAGE, "AccuracyCalculator")]
    labels = np.arange(60) % 6
    x = embeddings(labels, 16)
    results = dml.evaluation.evaluate_embeddings(
        x, labels, metrics=[name for _, name in names], distance="euclidean"
    )
    calculator = AccuracyCalculator(
        include=[name for name, _ in names], k=59, device=torch.device("cpu")
    )
    expected = calculator.get_accuracy(torch.tensor(x), torch.tensor(labels))
    for theirs_, mine in names:
        assert results[mine] == pytest.approx(expected[theirs_], abs=1e-6), mine


def test_inference_model_finds_the_same_neighbors():
    from pytorch_metric_learning.utils.inference import InferenceModel

    x = embeddings(np.arange(40), DIM)
    model = InferenceModel(torch.nn.Identity(), data_device="cpu")
    model.train_knn(torch.tensor(x))
    ids = model.get_nearest_neighbors(torch.tensor(x[:5]), k=4)[1]
    hits = dml.search.Index(x).search(x[:5], k=4)
    np.testing.assert_array_equal(hits.ids, ids.numpy())


def test_code_blocks_of_the_page_run():
    for block in blocks(PAGE):
        exec(block, {})  # noqa: S102


@pytest.mark.parametrize(
    "module",
    [
        distances, losses, miners, reducers, samplers, testers, trainers,
    ],
)  # fmt: skip
def test_every_public_name_is_on_the_page(module):
    text = (FOLDER / PAGE).read_text(encoding="utf-8")
    names = {
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and not re.search("^(Base|Generic|WeightReg|EmbeddingReg)", name)
    }
    assert len(names) > 2
    assert not {name for name in names if name not in text}


def test_regularizers_are_keras_activity_regularizers():
    x = embeddings(LABELS, DIM) * 2
    other = losses.ContrastiveLoss(
        embedding_regularizer=regularizers.LpRegularizer(power=2)
    )
    plain = losses.ContrastiveLoss()
    tensors = torch.tensor(x), torch.tensor(LABELS)
    penalty = float(other(*tensors)) - float(plain(*tensors))
    layer = keras.layers.ActivityRegularization(l2=1.0)
    layer(x)
    assert float(layer.losses[0]) == pytest.approx(penalty, rel=1e-5)


def test_names_in_docstrings_exist():
    """ "Also known as: - pytorch-metric-learning: `Name(...)`"."""
    loss_names = set()
    for entry in dml.losses.LOSSES.values():
        text = " ".join((entry.value.__doc__ or "").split())
        for line in re.findall(
            r"- pytorch-metric-learning: (.*?)(?: - |$)", text
        ):
            if "version 3" in line:
                continue
            loss_names |= set(re.findall(r"^`(\w+Loss)\(", line))
    assert len(loss_names) > 25
    assert not {name for name in loss_names if not hasattr(losses, name)}
