"""The base class: how Keras and objectives call a loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.losses import ContrastiveLoss, MarginLoss, TripletLoss
from tests.losses.oracle import LABELS, batch

LABEL = np.array(LABELS["balanced"])
X = batch(LABELS["balanced"]).astype("float32")


def test_call_is_the_weighted_mean_of_per_example():
    loss = ContrastiveLoss()
    values = np.array(loss.per_example(LABEL, X))
    assert float(loss(LABEL, X)) == pytest.approx(values.mean(), rel=1e-6)
    weights = np.arange(9, dtype="float32")
    assert float(loss(LABEL, X, weights)) == pytest.approx(
        (values * weights).mean(), rel=1e-6
    )


def test_loss_can_be_the_root_of_a_graph():
    loss = TripletLoss()
    compiled = tf.function(loss, autograph=False)
    assert float(compiled(LABEL, X)) == pytest.approx(
        float(loss(LABEL, X)), rel=1e-5
    )


def test_column_of_labels_counts_as_class_ids():
    loss = TripletLoss()
    assert float(loss(LABEL[:, None], X)) == float(loss(LABEL, X))


def test_large_ids_are_not_merged_by_a_call():
    large = np.array([2**24, 2**24 + 1, 2**40])[LABEL]
    loss = TripletLoss()
    assert float(loss(large, X)) == float(loss(LABEL, X))


def test_normalize_makes_the_scale_irrelevant():
    scales = np.linspace(0.1, 30, 9)[:, None].astype("float32")
    np.testing.assert_allclose(
        TripletLoss().per_example(LABEL, X * scales),
        TripletLoss().per_example(LABEL, X),
        rtol=1e-4,
        atol=1e-6,
    )
    raw = TripletLoss(normalize=False)
    assert not np.allclose(
        raw.per_example(LABEL, X * scales), raw.per_example(LABEL, X)
    )


@pytest.mark.slow
def test_loss_trains_a_plain_keras_model():
    # Ids that float32 cannot tell apart: training still separates them.
    labels = 2**24 + np.tile([0, 1, 2, 3], 16)
    images = np.eye(4, dtype="float32")[
        labels % 4
    ] + 0.1 * np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    model = keras.Sequential(
        [keras.layers.Input((4,)), keras.layers.Dense(2, dtype="mixed_float16")]
    )
    model.compile(
        keras.optimizers.Adam(0.05),
        loss=TripletLoss(distance="euclidean"),
        jit_compile=False,
    )
    history = model.fit(
        images, labels, batch_size=32, epochs=15, verbose=0, shuffle=False
    ).history["loss"]
    assert history[-1] < 0.5 * history[0]


@pytest.mark.parametrize(
    ("labels", "embeddings", "references", "message"),
    [
        (LABEL, X[:, 0], {}, "takes .B,. class ids"),
        (LABEL[:, None, None], X, {}, "takes .B,. class ids"),
        (LABEL, X, {"ref_embeddings": X}, "must be given together"),
        (LABEL, X, {"ref_labels": LABEL}, "must be given together"),
        (np.eye(9), X, {"ref_labels": LABEL}, "must be None if `labels`"),
        (np.eye(8), X, {}, "one row per anchor"),
        (np.eye(9)[:, :4], X, {}, "one column per reference"),
        (np.eye(9), X, {"ref_embeddings": X[:4]}, "here .9, 4."),
    ],
)
def test_wrong_shapes_raise(labels, embeddings, references, message):
    with pytest.raises(ValueError, match=message):
        ContrastiveLoss().per_example(labels, embeddings, **references)


def test_unknown_reduction_raises():
    with pytest.raises(ValueError, match="`reduction` of TripletLoss"):
        TripletLoss(reduction="sum")


@keras.saving.register_keras_serializable("tests")
class Owner(keras.layers.Layer):
    """A layer that owns a loss, as the objectives do."""

    def __init__(self, loss, **kwargs):
        super().__init__(**kwargs)
        self.loss = loss

    def build(self, input_shape):
        self.loss.build(self, input_shape[-1])

    def call(self, x):
        return x

    def get_config(self):
        config = keras.saving.serialize_keras_object(self.loss)
        return {**super().get_config(), "loss": config}

    @classmethod
    def from_config(cls, config):
        loss = keras.saving.deserialize_keras_object(config.pop("loss"))
        return cls(loss, **config)


# TensorFlow's variables do not know NumPy's newest `__array__` protocol.
@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_weights_of_a_loss_are_saved_with_its_owner(tmp_path):
    loss = MarginLoss(learn_beta=True, num_classes=3, seed=1)
    model = keras.Sequential([keras.layers.Input((5,)), Owner(loss)])
    (beta,) = model.trainable_variables
    beta.assign([1.0, 1.5, 0.5])
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        copy.trainable_variables[0].numpy(), beta.numpy()
    )
    restored = copy.layers[-1].loss
    assert restored.get_config() == loss.get_config()
    assert restored.beta_weight is copy.trainable_variables[0]


def test_owner_tracks_the_seed_of_a_loss():
    owner = Owner(MarginLoss(seed=1))
    owner.build((None, 5))
    assert owner.trainable_variables == []
    (state,) = owner.variables
    before = state.numpy()
    owner.loss.per_example(LABEL, X)
    assert not np.array_equal(before, state.numpy())


def test_per_replica_values_are_scaled_like_any_keras_loss():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        loss = ContrastiveLoss()
        value = strategy.run(lambda: loss(LABEL, X))
    assert float(value) == pytest.approx(float(loss(LABEL, X)))
