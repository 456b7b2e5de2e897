"""Data and losses that would train on nonsense raise or warn."""

import re

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from keras_dml import MetricModel, callbacks, losses, methods
from keras_dml.data import (
    ArraySet,
    ClassBalanced,
    PairSet,
    RelationSampler,
    pipeline,
)
from keras_dml.model.checks import BatchChecks
from keras_dml.resuming.states import variables_of
from tests.conftest import graph_and_xla
from tests.model.test_keras_contract import LABELS, dense, told, vectors
from tests.model.test_keras_contract import small as fresh

ONE_HOT = np.eye(6, dtype="int32")[LABELS]
PROXIES = {"name": "proxy_nca", "num_classes": 6}
MODELS: dict[str, tuple[MetricModel, list[np.ndarray]]] = {}
"""And what they begin with. Each is traced once, which takes the longest."""


def small(loss="contrastive", jit: bool = False) -> MetricModel:
    """An untrained model of vectors."""
    key = f"{loss} {jit}"
    if key not in MODELS:
        model = fresh(loss, jit)
        model.optimizer.build(model.trainable_variables)
        MODELS[key] = model, list(map(np.array, variables_of(model)))
    model, values = MODELS[key]
    for variable, value in zip(variables_of(model), values, strict=True):
        variable.assign(value)
    model._has_logged = False
    model.label_names = {}
    return model


def dataset(x, y, batch_size: int = 12) -> tf.data.Dataset:
    rows = np.random.default_rng(0).permutation(len(x))
    data = tf.data.Dataset.from_tensor_slices((x[rows], y[rows]))
    return data.batch(batch_size, drop_remainder=True)


class Batches(keras.utils.PyDataset):
    """Batches of a dataset, one after the other."""

    def __init__(self, data) -> None:
        super().__init__()
        self.batches = [(np.array(x), np.array(y)) for x, y in data]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


FEEDS = {
    "dataset": lambda x, y: {"x": dataset(x, y)},
    "dict": lambda x, y: {
        "x": dataset(x, y).map(lambda x, y: (x, {"label": y}))
    },
    "generator": lambda x, y: {
        "x": (pair for pair in dataset(x, y).as_numpy_iterator()),
        "steps_per_epoch": 2,
        "shuffle": False,
    },
    "PyDataset": lambda x, y: {"x": Batches(dataset(x, y))},
    "arrays": lambda x, y: {"x": x, "y": y, "batch_size": 12},
    "plain arrays": lambda x, y: {"x": x, "y": y, "balanced": False},
}


def messages(caplog) -> list[str]:
    return [x for x in told(caplog) if "fit draws class-balanced" not in x]


NO_IDS = {
    "one-hot": ("contrastive", ONE_HOT, r"\(48|\(12, 6\)|\(None, 6\).*argmax"),
    "float one-hot": ("contrastive", ONE_HOT.astype("f4"), "float32.*argmax"),
    "float": ("contrastive", LABELS.astype("f4"), "must be integers.*astype"),
    "1..C": (PROXIES, LABELS + 1, r"num_classes=6 and a label 6\. Number the"),
    "-1..C-1": (PROXIES, LABELS - 1, r"num_classes=6 and a label -1"),
}


@pytest.mark.parametrize(
    ("feed", "kind"),
    [
        *(("dataset", kind) for kind in NO_IDS),
        *((feed, "one-hot") for feed in ("dict", "arrays", "PyDataset")),
        *((feed, "1..C") for feed in ("arrays", "generator", "plain arrays")),
    ],
)
def test_unfit_labels_raise_in_fit(feed, kind) -> None:
    loss, labels, message = NO_IDS[kind]
    with pytest.raises(ValueError, match=message):
        fresh(loss).fit(**FEEDS[feed](vectors(), labels), verbose=0)


@pytest.mark.parametrize("feed", ["dataset", "generator"])
def test_square_one_hot_labels_raise(feed) -> None:
    """Such labels were once taken for relations, with a loss of 0."""
    x, labels = np.tile(vectors()[::8], (2, 1)), np.eye(6, dtype="int64")
    labels = np.concatenate([labels[[0, 1, 1, 2, 2, 3]]] * 2)
    batches = tf.data.Dataset.from_tensor_slices((x, labels)).batch(
        6, drop_remainder=True
    )
    data = {
        "dataset": lambda: batches,
        "generator": lambda: (pair for pair in batches.as_numpy_iterator()),
    }[feed]()
    model = fresh()
    with pytest.raises(ValueError, match="one-hot labels.*argmax"):
        model.fit(data, shuffle=False, verbose=0)
    with pytest.raises(ValueError, match="one-hot.*argmax"):
        model.train_on_batch(x[:6], labels[:6])


@graph_and_xla
def test_labels_out_of_range_are_found_in_a_later_batch(jit) -> None:
    model = small(PROXIES, jit=jit)
    labels = np.r_[LABELS[:36], LABELS[36:] + 2]
    data = tf.data.Dataset.from_tensor_slices((vectors(), labels)).batch(12)
    with pytest.raises(ValueError, match="num_classes=6 and a label 6"):
        model.fit(data, verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_labels_of_another_length_raise() -> None:
    arguments = vectors(), LABELS[:40]
    data = tf.data.Dataset.from_tensors(arguments)
    # It has traced no other shape: the shape of this batch is known.
    with pytest.raises(ValueError, match="40 labels for 48 embeddings"):
        fresh(jit=False).fit(data, verbose=0)
    data = tf.data.Dataset.from_generator(
        lambda: [arguments],
        output_signature=(
            tf.TensorSpec((None, 5)),
            tf.TensorSpec((None,), tf.int64),
        ),
    )
    with pytest.raises(ValueError, match="48 examples, 40 labels"):
        small().fit(data, verbose=0)
    with pytest.raises(ValueError, match="48 examples, 40 labels"):
        small().train_on_batch(*arguments)


def slices(x=None, y=None) -> tf.data.Dataset:
    inputs = vectors() if x is None else x
    return tf.data.Dataset.from_tensor_slices(
        inputs if y is None else (inputs, y)
    )


REFUSED = {
    "not batched": (
        lambda: {"x": slices(y=LABELS)}, r"must be batched.*\.batch\(64\)",
    ),
    "not batched, a generator": (
        lambda: {"x": (pair for pair in slices(y=LABELS).as_numpy_iterator())},
        r"must be batched.*\.batch\(64\)",
    ),
    "no labels": (
        lambda: {"x": slices().batch(12)}, "must have labels.*none",
    ),
    "other labels": (
        lambda: {
            "x": slices().batch(12).map(
                lambda x: (x, {"class": tf.zeros(12, tf.int64)})
            )
        },
        r"must have labels.*\['class'\]",
    ),
    "no labels of arrays": (
        lambda: {"x": vectors()}, "must have labels. Received: none",
    ),
    "empty arrays": (
        lambda: {"x": vectors()[:0], "y": LABELS[:0]},
        "`x` of MetricModel.fit must not be",
    ),
    "few weights": (
        lambda: {"x": vectors(), "y": LABELS, "sample_weight": np.ones(5)},
        "5 weights, 48 examples",
    ),
    "strings": (
        lambda: {"x": dataset(vectors(), LABELS.astype(str))},
        "strings.*return_inverse",
    ),
    "strings of a PyDataset": (
        lambda: {"x": Batches(dataset(vectors(), LABELS.astype(str)))},
        "strings.*return_inverse",
    ),
    "empty": (
        lambda: {"x": dataset(vectors()[:0], LABELS[:0])}, "must not be empty",
    ),
    "ragged": (
        lambda: {
            "x": tf.data.Dataset.from_tensors(
                (tf.ragged.constant([[1.0, 2.0], [3.0]]), LABELS[:2])
            )
        },
        "must be dense. Received: RaggedTensorSpec",
    ),
    "pairs": (
        lambda: {"x": PairSet(ArraySet(vectors()), [[0, 1]])},
        "RelationSampler",
    ),
    "examples": (
        lambda: {"x": ArraySet(vectors(), LABELS)},
        r"pipeline\(examples, ClassBalanced",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_unfit_data_raise_in_fit(name) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        small().fit(**make(), shuffle=False, verbose=0)


POSITIVE = [[i, i + 1] for i in range(0, 24, 2)]
BOTH = [*POSITIVE, [0, 2], [4, 6]]
IN_BATCH = (
    "triplet",
    "multi_similarity",
    "nt_xent",
    "circle",
    "lifted_structure",
)
RELATIONS: dict[str, tuple] = {
    "positive": (POSITIVE, None, {}, "a negative pair"),
    "transitive": (POSITIVE, None, {"transitive": True}, "a negative pair"),
    "negative": (POSITIVE, [0] * 12, {}, "a positive pair"),
    "apart": (
        [*POSITIVE, [30, 31], [32, 33]], [1] * 12 + [0] * 2,
        {"tuples_per_batch": 14},
        "an example with both a positive and a negative",
    ),
    "one pair": (POSITIVE, None, {"others": "negative", "tuples_per_batch": 1},
                 "a negative pair"),
}  # fmt: skip
"""Pairs, whether they are positive, options, and what batches lack."""


def related(pairs, positive=None, transitive=False, **options) -> dict:
    examples = ArraySet(vectors())
    relations = PairSet(examples, pairs, positive, transitive)
    options = {"tuples_per_batch": 4, **options}
    return {"x": pipeline(examples, RelationSampler(relations, **options))}


@pytest.mark.parametrize("kind", RELATIONS)
@pytest.mark.parametrize("loss", ["contrastive", "histogram", *IN_BATCH[:2]])
def test_relations_without_the_pairs_of_a_loss_raise(kind, loss) -> None:
    pairs, positive, options, missing = RELATIONS[kind]
    if kind == "apart" and loss not in IN_BATCH:
        missing = None  # These compare single pairs.
    data = related(pairs, positive, **options)
    if missing is None:
        small(loss).fit(**data, verbose=0)
        return
    message = f'batches lack {missing}. Use others="negative"'
    with pytest.raises(ValueError, match=message):
        small(loss).fit(**data, verbose=0)


@pytest.mark.parametrize("loss", IN_BATCH)
def test_pairs_train_a_loss_on_negatives_of_the_batch(loss) -> None:
    with pytest.raises(ValueError, match="batches lack a negative pair"):
        small(loss).fit(**related(POSITIVE), verbose=0)
    data = related(POSITIVE, others="negative")
    history = small(loss).fit(**data, epochs=2, verbose=0).history["loss"]
    assert history[0] > 1e-4
    pairs, positive = BOTH, [1] * 12 + [0] * 2
    small(loss).fit(**related(pairs, positive, tuples_per_batch=14), verbose=0)


def test_function_loss_trains_on_any_relations() -> None:
    attract = losses.FunctionLoss(
        lambda y, x: keras.ops.mean(1 - x @ keras.ops.transpose(x))
    )
    data = related(POSITIVE)
    assert fresh(attract).fit(**data, verbose=0).history["loss"][0] > 0


@pytest.mark.parametrize(
    ("loss", "relation", "missing"),
    [
        ("contrastive", 1, "a negative pair"),
        ("contrastive", 0, "a positive pair"),
        ("triplet", 1, "a negative pair"),
        ("triplet", None, "an example with both"),
    ],
)
def test_relation_matrices_without_needed_pairs_warn(
    loss, relation, missing, caplog
) -> None:
    matrix = np.full((12, 12), -1 if relation is None else relation)
    if relation is None:
        matrix[0, 1] = matrix[1, 0] = 1
        matrix[2, 3] = matrix[3, 2] = 0
    data = tf.data.Dataset.from_tensors((vectors()[:12], matrix))
    small(loss).fit(data, verbose=0)
    assert any(f"lack {missing}" in x for x in told(caplog))


ONE_CLASS = "All %d examples in a batch have the same class.*no negative pair"
SINGLETONS = "No two of the %d examples in a batch.*no positive pair.*ClassBal"


def in_order(labels, size: int) -> dict:
    data = tf.data.Dataset.from_tensor_slices((vectors(), labels))
    return {"x": data.batch(size)}


def arrays(labels, **options) -> dict:
    return {"x": vectors(), "y": labels, **options}


TOLD = {
    "singletons": (lambda: in_order(np.arange(48), 12), SINGLETONS % 12),
    "one class": (lambda: in_order(LABELS, 8), ONE_CLASS % 8),
    "planned, of one class": (
        lambda: arrays(LABELS, batch_size=3), ONE_CLASS % 3,
    ),
    "in order, of one class": (
        lambda: arrays(LABELS, batch_size=8, shuffle=False), ONE_CLASS % 8,
    ),
    "data of one class": (lambda: arrays(LABELS * 0), ONE_CLASS % 32),
    "data of singletons": (
        lambda: arrays(np.arange(48), balanced=False), SINGLETONS % 32,
    ),
    "random batches of many classes": (
        lambda: arrays(
            np.repeat(np.arange(24), 2), batch_size=4, balanced=False
        ),
        "0.13 positive pairs.*balanced=False",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_batches_without_pairs_warn_once(name, caplog) -> None:
    make, message = TOLD[name]
    small().fit(**make(), epochs=2, verbose=0)
    (said,) = messages(caplog)
    assert re.search(message, said)


TRIPLET_AND_VICREG = {"triplet": 1.0, "vicreg": 1.0}


def pull(labels, embeddings):
    return keras.ops.mean(embeddings)


@pytest.mark.parametrize(
    ("loss", "positives", "negatives"),
    [
        ("contrastive", True, True),
        ("vicreg", None, False),
        ("barlow_twins", None, False),
        ("instance", False, None),
        (TRIPLET_AND_VICREG, None, False),
        (pull, True, None),
        (losses.FunctionLoss(pull, needs_positives=False), False, None),
        (losses.MatryoshkaLoss("vicreg", (2, 4)), None, False),
        (losses.MatryoshkaLoss("instance", (2, 4)), False, None),
        (losses.CrossBatchMemory("vicreg", 9, warm_up=3), None, False),
        (losses.CrossBatchMemory("triplet", 9), False, None),
        (losses.CrossBatchMemory("triplet", 9, warm_up=3), True, None),
        (losses.CrossBatchMemory("instance", 9, warm_up=3), False, None),
    ],
)
def test_losses_declare_the_pairs_they_need(loss, positives, negatives) -> None:
    loss_object = losses.get(loss)
    assert positives in (None, loss_object.needs_positives)
    assert negatives in (None, loss_object.needs_negatives)


@pytest.mark.parametrize(
    ("loss", "needed"), [("triplet", True), ("vicreg", False)]
)
def test_methods_need_the_pairs_of_their_losses(loss, needed) -> None:
    tasks = methods.diva_tasks(("discriminative", "dance"), loss)
    assert methods.DivaObjective(tasks).needs_negatives is needed
    model = methods.dcml(dense(), embedding_dim=4, num_learners=2, loss=loss)
    assert model.objective.needs_negatives is needed
    tasks = methods.diva_tasks(("dance", "intra" if needed else "shared"))
    assert methods.DivaObjective(tasks).needs_positives is needed


def test_separate_pairs_warn_where_triplets_are_needed(caplog) -> None:
    relation = np.full((4, 4), -1)
    relation[[0, 1], [1, 0]] = 1
    relation[[2, 3], [3, 2]] = 0
    data = tf.data.Dataset.from_tensors((vectors()[:4], relation))
    fresh("contrastive").fit(data, verbose=0)
    assert not messages(caplog)
    fresh("triplet").fit(data, verbose=0)
    (message,) = messages(caplog)
    assert "both a positive and a negative" in message


@pytest.mark.slow
def test_relations_and_labels_can_be_mixed_between_calls() -> None:
    relation = (LABELS[:4, None] == LABELS[:4]).astype("int64")
    data = tf.data.Dataset.from_tensors((vectors()[:4], relation))
    model = fresh("contrastive", jit=False)
    model.optimizer.learning_rate = 0.0
    before = model.evaluate(data, verbose=0)
    for run in (model.fit, model.evaluate):
        run(dataset(vectors(), LABELS), verbose=0)
        run(data, verbose=0)
    assert model.evaluate(data, verbose=0) == before


@pytest.mark.parametrize("loss", ["contrastive", "proxy_nca"])
def test_good_batches_do_not_warn(loss, caplog) -> None:
    """Proxies need no positives."""
    if loss == "contrastive":
        small().fit(dataset(vectors(), LABELS), verbose=0)
    else:
        model = small({"name": loss, "num_classes": 48})
        model.fit(vectors(), np.arange(48), verbose=0)
    assert not messages(caplog)


@pytest.mark.parametrize("shared", [0, 1])
def test_label_sets_without_positives_warn(shared, caplog) -> None:
    labels = np.eye(4, 6, dtype=bool)
    labels[2, 0] = shared
    checks = BatchChecks("fit", small())
    for _ in range(2):
        checks.check_values(vectors()[:4], labels)
    assert [("share a label" in x) for x in messages(caplog)] == (
        [] if shared else [True]
    )


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ({"backbnoe/": 0.1}, "'backbnoe/'.*mean 'backbone'"),
        (
            {"head": 10.0, "head/dense/kernel": 0.0},
            "'head/dense/kernel' matches only",
        ),
        ({"head/dense/kernel": 0.0, "head": 10.0}, ""),
    ],
)
def test_patterns_must_match_a_variable(
    patterns, message, tiny_backbone
) -> None:
    model = methods.baseline(
        tiny_backbone, embedding_dim=4, rate_multipliers=patterns
    )
    if not message:
        model.compile("adam")
        return
    with pytest.raises(ValueError, match=message):
        model.compile("adam")


@pytest.mark.parametrize(
    "make",
    [
        lambda: callbacks.RetrievalEvaluation(vectors()),
        lambda: callbacks.Recluster("photographs", None),
        lambda: callbacks.Recluster(
            (vectors(), LABELS), ClassBalanced(LABELS, batch_size=8)
        ),
    ],
)
def test_unfit_arguments_of_callbacks_raise(make) -> None:
    with pytest.raises(ValueError, match="Received"):
        make()


# Plain Keras models, which have no checks of this package.


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (ONE_HOT, "one-hot|argmax"),
        (ONE_HOT.astype("float32"), "argmax"),
        (LABELS.astype("float32"), "must be integers"),
    ],
)
def test_unfit_labels_raise_in_a_plain_model(labels, message) -> None:
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    model.compile("sgd", loss=losses.ContrastiveLoss())
    with pytest.raises(ValueError, match=message):
        model.fit(vectors(), labels, verbose=0)
    batches = tf.data.Dataset.from_tensor_slices((vectors(), labels)).batch(6)
    with pytest.raises(ValueError, match=message):
        model.fit(batches, shuffle=False, verbose=0)


@graph_and_xla
def test_square_one_hot_labels_raise_in_a_plain_model(jit) -> None:
    """As many classes as examples: under XLA the loss can only be NaN."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    model.compile("sgd", loss=losses.ContrastiveLoss(), jit_compile=jit)
    labels = np.eye(6, dtype="int32")[[0, 1, 1, 2, 2, 3]]
    data = tf.data.Dataset.from_tensors((vectors()[:6], labels))
    if jit:
        history = model.fit(data, shuffle=False, verbose=0).history
        assert np.isnan(history["loss"][0])
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="argmax"):
            model.fit(data, shuffle=False, verbose=0)
    model.compile("sgd", loss=losses.ContrastiveLoss(), run_eagerly=True)
    with pytest.raises(ValueError, match="one-hot.*argmax"):
        model.fit(data, shuffle=False, verbose=0)


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ("dataset", "NaN or infinity in 1 of 12 examples of a batch"),
        ("PyDataset", "NaN or infinity in 1 of 12 examples of a batch"),
        ("plain arrays", "NaN or infinity in 1 of 24 examples of a batch"),
    ],
)
def test_non_finite_inputs_raise(feed: str, message: str) -> None:
    x = vectors()[:24].copy()
    x[np.random.default_rng(0).permutation(24)[3], 0] = np.nan
    y = np.repeat(np.arange(6), 4)
    with pytest.raises(ValueError, match=message):
        small().fit(**FEEDS[feed](x, y), verbose=0)


@pytest.mark.parametrize("feed", ["arrays", "plain arrays", "dataset", "plan"])
def test_label_minus_one_warns_once(feed, caplog) -> None:
    labels = np.where(LABELS == 5, -1, LABELS)
    if feed == "plan":
        sampler = ClassBalanced(labels, batch_size=12)
        data = {"x": pipeline(ArraySet(vectors(), labels), sampler)}
    else:
        data = FEEDS[feed](vectors(), labels)
    small().fit(**data, verbose=0)
    (said,) = messages(caplog)
    assert "the label -1" in said
    assert "unknown, leave these examples out" in said


MISSING = "`y` of MetricModel.fit must have a label for every example"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([None, *["a", "b"] * 23, "a"], rf"{MISSING}.*\(None\) for 1 of 48"),
        ([*["a", "b"] * 23, float("nan"), np.nan], r"2 of 48.*example 46"),
        (np.array([1, "1"] * 24, object), "strings, and 1.*Use str"),
        (np.r_[LABELS[:47], np.nan], f"{MISSING}.*notna"),
        (pd.Series([pd.NA, *LABELS[1:]], dtype="Int64"), MISSING),
        (pd.Series(["a", pd.NA] * 24, dtype="string"), "24 of 48"),
        (pd.Series(pd.Categorical.from_codes([-1, 0] * 24, ["a"])), "24 of 48"),
    ],
)
def test_missing_labels_are_counted(labels, message) -> None:
    with pytest.raises(ValueError, match=message):
        small().fit(vectors(), labels, verbose=0)


def test_fit_logs_the_examples_unless_silent(caplog) -> None:
    for verbose, expected in ((0, []), (2, ["48 examples, 1 steps of 32 per"])):
        small().fit(vectors(), LABELS, verbose=verbose)
        for said, part in zip(told(caplog), expected, strict=True):
            assert part in said and "Use balanced=False" in said


@pytest.mark.slow
def test_collapse_warns_once(caplog) -> None:
    """The loss is the margin, as no example differs from another."""
    inputs = keras.Input((5,))
    features = keras.layers.Dense(4, "relu")(inputs)
    model = methods.baseline(
        keras.Model(inputs, features), embedding_dim=3, loss="triplet"
    )
    model.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    for feed, bias, kind in (("arrays", 0, "a zero"), ("dataset", 1, "same")):
        model.backbone.set_weights([np.zeros((5, 4)), np.full(4, bias)])
        caplog.clear()
        data = FEEDS[feed](vectors(), LABELS)
        history = model.fit(**data, epochs=4, verbose=0).history
        np.testing.assert_allclose(history["loss"], 0.2, rtol=1e-5)
        (said,) = messages(caplog)
        assert "The model has collapsed: all of 1" in said
        assert kind in said and "the loss stays at 0.2" in said


def test_constant_loss_is_no_collapse(caplog) -> None:
    model = small()
    model.optimizer.learning_rate = 0.0
    model.fit(vectors(), LABELS, batch_size=48, epochs=3, verbose=0)
    assert not messages(caplog)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("EmbeddingObjective", {}),
        ("BoostedObjective", {"group_sizes": [4, 4]}),
        ("CascadeObjective", {"hard_shares": [1.0, 0.5]}),
        ("DivergentObjective", {}),
        ("GroupedObjective", {}),
        ("SelfDistillation", {"target_dims": [8]}),
        ("SharedTask", {}),
        ("LossTask", {}),
    ],
)
def test_objectives_take_losses_by_name_and_config(name, arguments) -> None:
    objective = getattr(methods, name)
    config = {"name": "contrastive", "positive_margin": 0.7}
    assert objective(config, **arguments).loss.positive_margin == 0.7
    default_loss = objective("contrastive", **arguments).loss
    assert type(default_loss) is losses.ContrastiveLoss
    with pytest.raises(ValueError, match="no loss 'contrastiv'"):
        objective("contrastiv", **arguments)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda loss: methods.SeparateTasks([loss]), "`objectives` of Sep"),
        (lambda loss: methods.IndependentObjective([loss]), "`objectives`"),
        (lambda loss: methods.MetaClasses(loss, 2, 8), "`objective` of Me"),
        (lambda loss: methods.Bootstrap(loss), "`objective` of Bootstrap"),
        (
            lambda loss: methods.CompositionObjective(
                methods.EmbeddingObjective("triplet"), loss
            ),
            "`tasks` of CompositionObjective",
        ),
        (lambda loss: methods.DivaObjective([loss]), "`tasks` of DivaObj"),
        (
            lambda loss: MetricModel(small().backbone, small().head, loss),
            "`objective` of MetricModel",
        ),
    ],
)
def test_loss_raises_as_an_objective(make, error) -> None:
    with pytest.raises(ValueError, match=f"{error}.* For a loss, use methods"):
        make("triplet")
