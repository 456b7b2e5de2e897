import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses, methods
from keras_dml.methods._baseline import EmbeddingHead
from tests.methods.test_contract import batch


def model_of(backbone, **kwargs):
    arguments = {"embedding_dim": 10, "num_learners": 3, "loss": "contrastive"}
    return methods.divide_and_conquer(backbone, **{**arguments, **kwargs})


def terms(model, x, targets) -> np.ndarray:
    outputs = model.outputs_of(x)
    return model.objective(outputs, targets)["metric"].numpy()


def test_minus_one_trains_the_merged_embedding(tiny_backbone, caplog) -> None:
    model = model_of(tiny_backbone)
    x, targets = batch(-1)
    expected = losses.get("contrastive").per_example(targets["label"], model(x))
    np.testing.assert_allclose(terms(model, x, targets), expected, rtol=1e-5)
    assert not caplog.text
    del targets["learner"]
    np.testing.assert_allclose(terms(model, x, targets), expected, rtol=1e-5)
    assert "only the merged embedding" in caplog.text


def test_unsplit_embedding_has_a_plain_head(tiny_backbone) -> None:
    model = methods.divide_and_conquer(tiny_backbone, split_embedding=False)
    assert isinstance(model.head, EmbeddingHead)
    model.compile("adam", run_eagerly=True)
    model.train_on_batch(*batch(1))  # The learner is ignored.


# The base losses of Table 3, and shapes of the weights that each owns for
# a learner (slices of 4, 4 and 2) and for the merged embedding.


@pytest.mark.slow
def test_margin_mining_trains_compiled(tiny_backbone) -> None:
    # A loop within a condition: whose turn it is, and then whose positive.
    model = model_of(tiny_backbone, loss="margin")
    model.compile(keras.optimizers.SGD(0.1), jit_compile=True)
    for learner in (0, 1, -1):
        x, targets = batch(learner)
        before = [w.numpy() for w in model.head.trainable_variables]
        assert np.isfinite(model.train_on_batch(x, targets)).all()
        after = [w.numpy() for w in model.head.trainable_variables]
        assert not all(map(np.array_equal, before, after))


LEARNED = {
    "proxy_nca": losses.ProxyNCALoss(num_classes=5),
    "margin": losses.MarginLoss(learn_beta=True, num_classes=5),
    "both": losses.WeightedSum(
        {
            "proxy": losses.ProxyNCALoss(num_classes=5),
            "margin": losses.MarginLoss(learn_beta=True),
        }
    ),
}


def learned(tiny_backbone, loss: str, merged_start="learned", **kwargs):
    """A model whose learners' losses have different variables."""
    model = model_of(
        tiny_backbone,
        loss=LEARNED[loss].copy(),
        merged_start=merged_start,
        **kwargs,
    )
    draw = np.random.default_rng(0).normal
    for layer in model.objective.part_layers:
        for variable in layer.trainable_variables:
            variable.assign(draw(size=variable.shape))
    return model


def merged_variables(model) -> dict[str, np.ndarray]:
    return {
        v.path.rsplit("/", 1)[1]: v.numpy()
        for v in model.objective.trainable_variables
        if "learner_" not in v.path
    }


def no_means(num_classes: int):
    raise AssertionError("There was nothing to embed for.")


@pytest.mark.parametrize("loss", LEARNED)
def test_merged_loss_starts_from_the_learners(loss, tiny_backbone) -> None:
    model = learned(tiny_backbone, loss)
    model.objective.start_merged(no_means)
    variables = merged_variables(model)
    if loss != "margin":
        # D = 10 and K = 3: slices of 4, 4 and 2, the last padded to 4.
        slices = [
            next(v.numpy() for v in x.trainable_variables if "prox" in v.path)
            for x in model.objective.part_layers
        ]
        unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in slices]
        expected = np.concatenate(unit, axis=1)[:, :10] / np.sqrt(3)
        np.testing.assert_allclose(variables["proxies"], expected, rtol=1e-5)
    if loss != "proxy_nca":
        betas = [
            next(v.numpy() for v in x.trainable_variables if "beta" in v.path)
            for x in model.objective.part_layers
        ]
        np.testing.assert_allclose(
            variables["beta"], np.mean(betas, axis=0), rtol=1e-5
        )


def test_merged_proxy_scores_as_the_mean_of_its_slices(
    tiny_backbone,
) -> None:
    model = learned(tiny_backbone, "proxy_nca", embedding_dim=12)
    model.objective.start_merged(no_means)
    outputs = model.outputs_of(batch(0)[0])
    merged = outputs["embedding"] @ merged_variables(model)["proxies"].T
    parts = [
        outputs["parts"][:, k]
        @ tf.transpose(tf.math.l2_normalize(x.proxies, 1))
        for k, x in enumerate(model.objective.part_losses)
    ]
    np.testing.assert_allclose(merged, np.mean(parts, axis=0), atol=1e-5)


def test_merged_proxies_may_start_at_class_means(tiny_backbone) -> None:
    model = learned(tiny_backbone, "proxy_nca", merged_start="class_means")
    means = np.random.default_rng(1).normal(size=(5, 10))
    means[3] = 0  # A class without images keeps what the learners learned.
    model.objective.start_merged(lambda num_classes: means[:num_classes])
    proxies = merged_variables(model)["proxies"]
    np.testing.assert_allclose(np.delete(proxies, 3, 0), np.delete(means, 3, 0))
    assert np.linalg.norm(proxies[3]) > 0.5


def test_merged_loss_may_keep_its_initial_state(tiny_backbone) -> None:
    model = learned(tiny_backbone, "both", merged_start="initial")
    before = merged_variables(model)
    model.objective.start_merged(no_means)
    for name, value in merged_variables(model).items():
        np.testing.assert_array_equal(value, before[name])
