import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.layers import Compositor

B, K, D, M = 5, 3, 4, 6


def sub_embeddings(scale: float = 0.5) -> np.ndarray:
    rng = np.random.default_rng(1)
    return (scale * rng.normal(size=(B, K, D))).astype("f4")


def built(**arguments) -> Compositor:
    layer = Compositor(**{"num_compositors": M, **arguments})
    layer.build((None, K, D))
    return layer


def branches(layer: Compositor) -> tuple[np.ndarray, np.ndarray]:
    """Kernels (F, M, K, K·d) and biases (F, M, K) of scores and signs."""
    shape = (
        layer.softmax + layer.signs,
        layer.num_compositors,
        layer.num_learners,
    )
    kernel = layer.kernel.numpy().astype("f8").reshape(-1, *shape)
    bias = layer.bias.numpy().astype("f8").reshape(shape)
    return kernel.transpose(1, 2, 3, 0), bias


def by_hand(layer: Compositor, y: np.ndarray):
    """Eq. 4 to 6, image by image and compositor by compositor."""
    kernel, bias = branches(layer)
    z, c = np.zeros((B, M, D)), np.zeros((B, M, K))
    for b in range(B):
        whole = np.concatenate(y[b]).astype("f8")
        if layer.input_norm:
            whole = whole / np.linalg.norm(whole)
        for m in range(M):
            t, s = np.full(K, 1 / K), np.ones(K)
            if layer.softmax:
                e = np.exp(kernel[0, m] @ whole + bias[0, m])
                t = e / e.sum()
            if layer.signs:
                u = kernel[-1, m] @ whole + bias[-1, m]
                s = np.array([1 if np.tanh(x) > 0 else -1 for x in u])
            c[b, m] = t * s
            z[b, m] = sum(c[b, m, k] * y[b, k] for k in range(K))
    return z, c


@pytest.mark.parametrize(
    "arguments",
    [{}, {"signs": False}, {"softmax": False}, {"input_norm": True}],
    ids=str,
)
def test_compositor_matches_the_equations(arguments) -> None:
    layer = built(**arguments)
    y = sub_embeddings()
    composites, weights = layer(y)
    z, c = by_hand(layer, y)
    np.testing.assert_allclose(weights, c, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(composites, z, rtol=1e-4, atol=1e-6)
    assert layer.compute_output_shape(y.shape) == (z.shape, c.shape)


def test_sign_of_zero_is_minus_one() -> None:
    layer = built(initializer="zeros")
    _, weights = layer(sub_embeddings())
    np.testing.assert_allclose(weights, -1 / K, rtol=1e-6)


def test_signs_alone_are_exact() -> None:
    """The straight-through estimator adds no rounding."""
    layer = Compositor(M, softmax=False)
    _, weights = layer(sub_embeddings()[:, :2])
    assert set(np.unique(weights)) == {np.float32(-0.5), np.float32(0.5)}


def gradients_by_hand(layer, y, dz, dc):
    """Backward of Σ dz·z + Σ dc·c: (∂y, ∂kernel, ∂bias).

    `dz` is for what a task says about z, `dc` what a loss says about c.
    The derivative of the sign is 1, and that of its input 1 − tanh².
    """
    kernel, bias = branches(layer)
    _, c = by_hand(layer, y)
    whole = y.reshape(B, -1).astype("f8")
    dy = np.einsum("bmk,bmd->bkd", c, dz)
    if layer.train_on_composites:
        dc = dc + np.einsum("bmd,bkd->bmk", dz, y)
    u = np.einsum("bj,mkj->bmk", whole, kernel[1]) + bias[1]
    t, s = np.abs(c), np.sign(c)
    dt, ds = dc * s, dc * t
    score = t * (dt - (dt * t).sum(-1, keepdims=True))
    sign = ds * (1 - np.tanh(u) ** 2)
    logits = np.stack([score, sign], axis=1)
    return dy, np.einsum("bj,bfmk->jfmk", whole, logits), logits.sum(0)


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("about_weights", [0.0, 1.0])
def test_gradients_match_those_by_hand(trained, about_weights) -> None:
    layer = built(train_on_composites=trained)
    y = sub_embeddings()
    rng = np.random.default_rng(2)
    dz = rng.normal(size=(B, M, D)).astype("f4")
    dc = about_weights * rng.normal(size=(B, M, K)).astype("f4")
    with tf.GradientTape() as tape:
        inputs = tf.constant(y)
        tape.watch(inputs)
        z, c = layer(inputs)
        loss = tf.reduce_sum(dz * z) + tf.reduce_sum(dc * c)
    gradients = tape.gradient(
        loss, [inputs, layer.kernel.value, layer.bias.value]
    )
    expected = gradients_by_hand(layer, y, dz, dc)
    for actual, desired in zip(gradients, expected, strict=True):
        desired = np.reshape(desired, actual.shape)
        np.testing.assert_allclose(actual, desired, rtol=1e-3, atol=1e-5)
    untrained = not trained and not about_weights
    assert np.any(gradients[1]) == (not untrained)


def test_weights_start_normally_distributed() -> None:
    layer = Compositor(40)
    layer.build((None, 8, 16))
    values = np.concatenate([layer.kernel.numpy(), layer.bias.numpy()[None]])
    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1) < 0.02
    # Scores, signs and bias are different draws.
    halves = np.split(layer.kernel.numpy(), 2, axis=1)
    assert abs(np.corrcoef(*(x.ravel() for x in halves))[0, 1]) < 0.02
    first = layer.kernel.numpy()[0]
    assert abs(np.corrcoef(first, layer.bias.numpy())[0, 1]) < 0.2


def test_input_norm_keeps_long_inputs_from_saturating() -> None:
    y = sub_embeddings(100.0)
    saturated = np.abs(built()(y)[1]).max(-1).mean()
    assert saturated > 0.99
    assert np.abs(built(input_norm=True)(y)[1]).max(-1).mean() < 0.9
    same = built(input_norm=True, initializer=keras.initializers.Ones())
    np.testing.assert_allclose(same(y)[1], same(y / 9)[1], rtol=1e-5)
