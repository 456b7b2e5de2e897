"""Heads that start from a projection of the features they receive."""

from typing import Any

import keras
import numpy as np
import pytest

from keras_dml import MetricModel, backbones, methods
from keras_dml.data import ArraySet, ClassBalanced, pipeline
from keras_dml.evaluation import evaluate_embeddings
from keras_dml.model.projections import fit_projection, map_at_r

CLASSES, CHANNELS, DIM = 24, 128, 64
LABELS = np.repeat(np.arange(CLASSES), 8)

ARGUMENTS: dict[str, dict[str, Any]] = {
    "abe": {
        "num_learners": 2,
        "branch": "first",
        "attention_end": "second",
    },
    "attentive_grouping": {"num_groups": 2},
    "bier": {"group_sizes": (24, 40)},
    "dreml": {"num_classes": CLASSES, "num_meta_classes": 4},
    "hdc": {"branches": ["first"], "hard_shares": (1.0, 0.5)},
}

SHARED_BY_TWO = ("abe", "attentive_grouping", "hdc")
"""Methods whose head spans half of its dimensions: two parts share them."""

AT_RANDOM = {
    "dreml": "its learners are to differ as much as they can",
    "whitening": "its `fit` computes the head",
}
"""Methods that start at random, and the reason."""


def features(seed: int, classes: int = CLASSES) -> np.ndarray:
    """Features; classes differ more in the first directions."""
    rng = np.random.default_rng(seed)
    spread = np.geomspace(4, 0.4, CHANNELS)
    labels = np.repeat(np.arange(classes), 8)
    means = rng.normal(size=(classes, CHANNELS)) * spread
    x = means[labels] + 2.5 * rng.normal(size=(len(labels), CHANNELS))
    return (0.1 * (x + 2)).astype("float32")


TRAIN, UNSEEN = features(0), features(1)


def identity(shape: tuple[int, ...] = (CHANNELS,)) -> keras.Model:
    """An identity network that counts as trained."""
    x = inputs = keras.Input(shape)
    for name in ("first", "second", "third"):
        x = keras.layers.Identity(name=name)(x)
    return keras.Model(inputs, x)


def found(model: MetricModel, x: np.ndarray = UNSEEN) -> float:
    """MAP@R of unseen classes."""
    shape = model.input_shape[1:]
    embeddings = model.predict(x.reshape(-1, *shape), verbose=0)
    return map_at_r(embeddings, np.repeat(np.arange(len(x) // 8), 8))


def of_pca(
    dim: int, x: np.ndarray = TRAIN, unseen: np.ndarray = UNSEEN
) -> float:
    pca = fit_projection(x, LABELS, dim, ["pca"])
    return map_at_r(pca(unseen), LABELS)


@pytest.mark.parametrize("name", [*methods.METHODS])
def test_frozen_model_of_each_method_starts_as_good_as_pca(name: str) -> None:
    keras.utils.set_random_seed(0)
    model = methods.METHODS[name].value(
        identity((1, 1, CHANNELS)),
        embedding_dim=DIM,
        **ARGUMENTS.get(name, {}),
    )
    if name in AT_RANDOM:
        assert model.head_init == "random"
        return
    before = found(model)
    model.start_head(TRAIN.reshape(-1, 1, 1, CHANNELS), LABELS)
    after = found(model)
    assert after > before
    rank = DIM // 2 if name in SHARED_BY_TWO else DIM
    (linear, *_) = model.head.linear_layers()
    pca = fit_projection(TRAIN, LABELS, rank, ["pca"], bool(linear.biases))
    assert after >= 0.97 * map_at_r(pca(UNSEEN), LABELS)
    assert all(np.isfinite(v).all() for v in model.get_weights())


def baseline(**changes: Any) -> MetricModel:
    keras.utils.set_random_seed(0)
    arguments = {"embedding_dim": DIM, "loss": "contrastive", **changes}
    backbone = arguments.pop("backbone", None) or identity()
    model = methods.baseline(backbone, pooling="none", **arguments)
    model.compile(keras.optimizers.SGD(0.0))
    return model


def kernel(model: MetricModel) -> np.ndarray:
    return np.array(model.head.dense.kernel)


def test_first_fit_starts_the_head_and_no_later_one_does(tmp_path) -> None:
    model = baseline()
    built = kernel(model)
    model.fit(TRAIN, LABELS, verbose=0)
    started = kernel(model)
    assert not np.allclose(started, built)
    # Columns of another length would learn at another speed.
    assert np.linalg.norm(started) == pytest.approx(np.linalg.norm(built))
    model.fit(UNSEEN, LABELS, verbose=0)
    np.testing.assert_array_equal(kernel(model), started)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.compile(keras.optimizers.SGD(0.0))
    loaded.fit(UNSEEN, LABELS, verbose=0)
    np.testing.assert_array_equal(kernel(loaded), started)


@pytest.mark.parametrize("case", ["random", "weights", "untrained", "iterated"])
def test_head_that_is_not_new_is_left_alone(case: str) -> None:
    model = baseline(head_init="random" if case == "random" else "auto")
    x = TRAIN
    if case == "weights":
        model.head.dense.kernel.assign(2 * kernel(model))
    if case == "untrained":
        network = backbones.small_convnet((16, 16, 1), filters=(4, 8))
        model = methods.baseline(network, embedding_dim=DIM, loss="contrastive")
        model.compile(keras.optimizers.SGD(0.0))
        x = np.random.default_rng(0).uniform(size=(len(LABELS), 16, 16, 1))
    if case == "iterated":
        model.optimizer.iterations.assign(1)
    before = kernel(model)
    model.fit(x, LABELS, verbose=0)
    np.testing.assert_array_equal(kernel(model), before)


def as_dataset(x: np.ndarray) -> Any:
    examples = ArraySet(x, LABELS)
    sampler = ClassBalanced(LABELS, classes_per_batch=8, images_per_class=4)
    return pipeline(examples, sampler)


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return len(LABELS) // 32

    def __getitem__(self, number: int) -> Any:
        part = slice(32 * number, 32 * (number + 1))
        return TRAIN[part], LABELS[part]


@pytest.mark.parametrize(
    "data", [as_dataset(TRAIN), Batches()], ids=["pipeline", "PyDataset"]
)
def test_all_kinds_of_data_give_the_same_start(data) -> None:
    model, other = baseline(), baseline()
    model.fit(TRAIN, LABELS, verbose=0)
    other.fit(data, verbose=0)
    np.testing.assert_allclose(kernel(other), kernel(model), atol=1e-5)


def test_generator_leaves_a_random_start_and_logs_it(caplog) -> None:
    model = baseline()
    built = kernel(model)
    batches = (Batches()[k % 3] for k in range(6))
    model.fit(batches, steps_per_epoch=3, verbose=0)
    np.testing.assert_array_equal(kernel(model), built)
    assert "starts at random" in caplog.text


def test_fewer_images_than_dimensions_leave_the_rest_at_random(caplog) -> None:
    model = baseline(head_init="pca")
    model.fit(TRAIN[::24], LABELS[::24], balanced=False, verbose=0)
    assert "7 directions" in caplog.text
    started = kernel(model)
    assert np.linalg.matrix_rank(started) == DIM
    lengths = np.linalg.norm(started, axis=0)
    np.testing.assert_allclose(lengths, lengths[0], rtol=1e-4)


def test_momentum_encoder_starts_with_the_head() -> None:
    model = baseline(ema_momentum=0.9)
    model.start_head(TRAIN, LABELS)
    encoder = model.momentum_encoder
    assert encoder is not None
    np.testing.assert_array_equal(
        encoder.head.dense.kernel, model.head.dense.kernel
    )


def test_projection_of_layer_norm_fits_the_input_of_the_layer() -> None:
    model = baseline(layer_norm=True, head_init="pca")
    model.start_head(TRAIN, LABELS)
    rest = TRAIN - TRAIN.mean(axis=1, keepdims=True)
    rest /= np.sqrt(rest.var(axis=1, keepdims=True) + 1e-5)
    pca = fit_projection(rest, LABELS, DIM, ["pca"])(rest)
    pca /= np.linalg.norm(pca, axis=1, keepdims=True)
    embeddings = model.predict(TRAIN, verbose=0)
    np.testing.assert_allclose(
        embeddings @ embeddings.T, pca @ pca.T, atol=1e-4
    )


def trained(
    head_init: str,
    x: np.ndarray,
    unseen: np.ndarray,
    rate: float = 1e-3,
    epochs: int = 3,
) -> float:
    model = baseline(head_init=head_init, loss="multi_similarity")
    model.compile(keras.optimizers.Adam(rate))
    model.fit(x, LABELS, epochs=epochs, verbose=0)
    return found(model, unseen)


def test_random_start_loses_what_the_features_hold() -> None:
    start = of_pca(DIM)
    assert trained("auto", TRAIN, UNSEEN) > 0.98 * start
    assert trained("random", TRAIN, UNSEEN) < 0.9 * start


def test_training_overcomes_a_misleading_start() -> None:
    """A nuisance larger than all classes; the start must not hold it back."""
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(2, len(LABELS), 8)).astype("float32")
    x, unseen = TRAIN.copy(), UNSEEN.copy()
    x[:, -8:] += noise[0]
    unseen[:, -8:] += noise[1]
    start = of_pca(DIM, x, unseen)
    assert trained("pca", x, unseen, 1e-2, epochs=15) > 2 * start


def test_started_model_evaluates_like_its_projection() -> None:
    model = baseline(head_init="whitening")
    model.start_head(TRAIN, LABELS)
    whitened = fit_projection(TRAIN, LABELS, DIM, ["whitening"])(UNSEEN)
    whitened /= np.linalg.norm(whitened, axis=1, keepdims=True)
    by_model = evaluate_embeddings(model.predict(UNSEEN, verbose=0), LABELS)
    by_hand = evaluate_embeddings(whitened.astype("float32"), LABELS)
    assert by_model["map@r"] == pytest.approx(by_hand["map@r"], abs=1e-4)


@pytest.mark.parametrize("name", ["arc_face", "normalized_softmax"])
def test_class_vectors_start_at_class_means(name: str) -> None:
    model = started({"name": name, "num_classes": CLASSES + 1})
    unit = model.predict(TRAIN, verbose=0)
    means = np.stack([unit[LABELS == c].mean(axis=0) for c in range(CLASSES)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    proxies = keras.ops.convert_to_numpy(model.objective.loss.proxies)
    np.testing.assert_allclose(proxies[:CLASSES], means, atol=1e-5)
    # A class without examples keeps its vector.
    np.testing.assert_array_equal(proxies[CLASSES:], model.as_built[CLASSES:])


def test_class_vectors_of_named_classes_start_at_class_means() -> None:
    loss = {"name": "normalized_softmax", "num_classes": CLASSES}
    names = np.array([f"class {x:02}" for x in range(CLASSES)])
    model = started(loss, starts=False)
    model.compile(keras.optimizers.SGD(0.0))
    model.fit(TRAIN, names[LABELS], batch_size=64, epochs=1, verbose=0)
    np.testing.assert_allclose(
        model.objective.loss.proxies, started(loss).objective.loss.proxies
    )


def test_class_vectors_set_by_the_user_stay() -> None:
    loss = {"name": "normalized_softmax", "num_classes": CLASSES}
    model = started(loss, starts=False)
    mine = np.ones((CLASSES, DIM), np.float32)
    model.objective.loss.proxies.assign(mine)
    model.start_head(TRAIN, LABELS)
    np.testing.assert_array_equal(model.objective.loss.proxies, mine)
    fixed = started({**loss, "trainable_proxies": False})
    np.testing.assert_array_equal(fixed.objective.loss.proxies, fixed.as_built)


@pytest.mark.parametrize("name", ["proxy_anchor", "proxy_nca"])
def test_proxies_of_some_losses_start_as_built(name: str) -> None:
    model = started({"name": name, "num_classes": CLASSES})
    np.testing.assert_array_equal(model.objective.loss.proxies, model.as_built)


def started(loss: dict[str, Any], starts: bool = True) -> MetricModel:
    keras.utils.set_random_seed(0)
    model = methods.baseline(
        identity(), embedding_dim=DIM, pooling="none", loss=loss
    )
    model.compile("adam")
    model.as_built = model.objective.loss.proxies.numpy()
    if starts:
        model.start_head(TRAIN, LABELS)
    return model


@pytest.mark.parametrize(
    ("grouping", "init"), [("G", "pca"), ("N", "random"), ("G", "random")]
)
def test_head_without_a_linear_layer_stays_as_built(grouping, init) -> None:
    keras.utils.set_random_seed(0)
    model = methods.attentive_grouping(
        identity((1, 1, CHANNELS)), embedding_dim=DIM, grouping=grouping,
        head_init=init,
    )  # fmt: skip
    model.compile("adam")
    before = model.head.get_weights()
    model.start_head(TRAIN.reshape(-1, 1, 1, CHANNELS), LABELS)
    for x, y in zip(before, model.head.get_weights(), strict=True):
        np.testing.assert_array_equal(x, y)
