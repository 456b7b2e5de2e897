"""Trains every method by a few steps: `python -m tests.model.steps OUT INIT`.

On the backend of KERAS_BACKEND, and all devices of JAX if there are several.
Weights begin as in INIT.npz, which TensorFlow writes. Losses and weights go
to OUT.npz.
"""

import sys
from typing import Any

import keras
import numpy as np

CLASSES, EACH, STEPS = 6, 4, 20
PROXIES = {"name": "proxy_anchor", "num_classes": CLASSES}
MARGIN = {"name": "margin", "learn_beta": True, "num_classes": CLASSES}
SHARED = {"name": "normalized_softmax", "num_classes": 60, "class_share": 0.5}
MEMORY = {"name": "cross_batch_memory", "loss": "contrastive", "size": 64}
SEVERAL = ["contrastive", "triplet"]

CASES: dict[str, dict[str, Any]] = {
    "abe": {"loss": "contrastive"},
    "attentive_grouping": {"loss": "multi_similarity", "num_groups": 2},
    "baseline": {"loss": "multi_similarity"},
    "bier": {"loss": "binomial_deviance"},
    "dcml": {"loss": "contrastive"},
    "distillation": {"loss": "contrastive"},
    "diva": {"loss": "contrastive", "queue_size": 32},
    "divide_and_conquer": {"loss": "contrastive"},
    "dreml": {"num_classes": CLASSES, "num_learners": 2},
    "ensemble": {"loss": "contrastive", "num_learners": 2},
    "hdc": {"loss": "contrastive", "embedding_dim": 15},
    "mic": {"loss": "contrastive"},
    "s2sd": {"loss": "contrastive"},
    # What has code of its own in a step.
    "baseline, proxies": {"loss": PROXIES, "rate_multipliers": {"/loss/": 9.0}},
    "baseline, margin": {"loss": MARGIN, "decay_loss_variables": True},
    "baseline, some classes": {"loss": SHARED},
    "baseline, memory": {"loss": MEMORY},
    "baseline, dynamic": {"loss": "dynamic_soft_margin"},
    "baseline, learned": {
        "loss": SEVERAL,
        "loss_weights": dict.fromkeys(SEVERAL, "learned"),
    },
    "baseline, in parts": {"loss": "contrastive", "accumulate": 5},
    "baseline, frozen": {"loss": "contrastive", "freeze_steps": 2},
}


def batches(method: str) -> Any:
    import tensorflow as tf

    rng = np.random.default_rng(0)
    labels = np.tile(np.repeat(np.arange(CLASSES), EACH), STEPS)
    # Coarse, as noise of single pixels would leave a class at one point, at
    # which distances have no gradient.
    x = rng.uniform(0, 200, (len(labels), 4, 4, 1)).astype("float32")
    x = x.repeat(4, axis=1).repeat(4, axis=2) + 8 * labels[:, None, None, None]
    targets = {
        "label": labels,
        "learner": np.repeat(np.arange(STEPS) % 3, CLASSES * EACH),
        "cluster": labels % 3,
        "surrogate": labels % 5,
    }
    inputs = {"image": x, "image2": x[:, ::-1]} if method == "diva" else x
    dataset = tf.data.Dataset.from_tensor_slices((inputs, targets))
    return dataset.batch(CLASSES * EACH)


class Losses(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.values: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.values.append(float(logs["loss"]))


def model_of(case: str) -> tuple[Any, list[keras.Variable]]:
    """A compiled model, and all variables that its training begins from."""
    from keras_dml import backbones, methods

    method = case.partition(",")[0]
    network = backbones.small_convnet((16, 16, 1), filters=(8, 8, 16, 16))
    arguments = {"embedding_dim": 16, **CASES[case]}
    teacher_variables = []
    if method == "distillation":
        copy = keras.models.clone_model(network)
        arguments["teacher"] = methods.baseline(copy, embedding_dim=4)
        teacher_variables = arguments["teacher"].variables
    model = getattr(methods, method)(network, **arguments)
    model.compile(keras.optimizers.SGD(1e-4, momentum=0.9, weight_decay=1e-2))
    return model, [*model.variables, *teacher_variables]


def main(out: str, begin: str, *cases: str) -> None:
    is_first = keras.backend.backend() == "tensorflow"
    if not is_first:
        import jax

        if len(jax.devices()) > 1:
            distribution = keras.distribution.DataParallel(
                devices=jax.devices()
            )
            keras.distribution.set_distribution(distribution)
    numpy = keras.ops.convert_to_numpy
    starts = {} if is_first else dict(np.load(f"{begin}.npz"))
    results = {}
    for case in cases or CASES:
        keras.utils.set_random_seed(0)
        model, variables = model_of(case)
        for i, variable in enumerate(variables):
            value = starts.setdefault(f"{case} {i}", numpy(variable))
            variable.assign(value)
        losses = Losses()
        data = batches(case.partition(",")[0])
        model.fit(data, verbose=0, callbacks=[losses])
        results[f"{case}, loss"] = np.array(losses.values)
        for i, variable in enumerate(model.variables):
            results[f"{case}, {variable.path} {i}"] = numpy(variable)
    if is_first:
        np.savez(f"{begin}.npz", **starts)
    np.savez(f"{out}.npz", **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
