"""What Keras itself does on several replicas: see docs/distributed.md."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

X = np.arange(24, dtype="float32").reshape(6, 4) / 24
Y = X[:, :1]


def model(strategy: tf.distribute.Strategy, **options: Any) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1, **options), "mse")
    return model


def rows_of_predict_on_batch(strategy: tf.distribute.Strategy) -> bool:
    """Every replica embeds the whole batch, and all of them come back."""
    copies = strategy.num_replicas_in_sync
    return len(model(strategy).predict_on_batch(X)) == copies * len(X)


def iterator_before_epoch(strategy: tf.distribute.Strategy) -> bool:
    """An epoch's data are asked for before its `on_epoch_begin`."""
    events: list[str] = []

    def batches() -> Iterator[Any]:
        events.append("data")
        yield X, Y

    dataset = tf.data.Dataset.from_generator(
        batches,
        output_signature=(
            tf.TensorSpec((6, 4)),
            tf.TensorSpec((6, 1)),
        ),
    ).apply(tf.data.experimental.assert_cardinality(1))
    note = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: events.append("begin")
    )
    model(strategy).fit(dataset, epochs=2, verbose=0, callbacks=[note])
    return events.index("data") < events.index("begin")


def refuses(**options: Any) -> Callable[[tf.distribute.Strategy], bool]:
    def refused(strategy: tf.distribute.Strategy) -> bool:
        try:
            model(strategy, **options).fit(X, Y, verbose=0)
        except (ValueError, RuntimeError):
            return True
        return False

    return refused


def shapes_of_gather(strategy: tf.distribute.Strategy) -> bool:
    """A gather forgets what is known of the other dimensions."""
    shapes: list[Any] = []

    def step() -> None:
        context = tf.distribute.get_replica_context()
        shapes.append(context.all_gather(tf.ones((2, 3)), axis=0).shape)

    tf.function(lambda: strategy.run(step))()
    return any(shape.rank is None or shape[1] is None for shape in shapes)


def labels_of_build(strategy: tf.distribute.Strategy) -> bool:
    """A loss sees the mean of class ids over replicas before it trains."""
    dtypes: list[str] = []

    class Loss(keras.losses.Loss):
        def __call__(self, y: Any, x: Any, sample_weight: Any = None) -> Any:
            dtypes.append(keras.backend.standardize_dtype(y.dtype))
            return keras.ops.mean(x)

    own = model(strategy)
    own.compile(own.optimizer, Loss())
    own.fit(X, np.arange(len(X)), verbose=0)
    return any("float" in dtype for dtype in dtypes)


GAPS: dict[str, Callable[[tf.distribute.Strategy], bool]] = {
    "predict_on_batch": rows_of_predict_on_batch,
    "epoch": iterator_before_epoch,
    "gradient_accumulation_steps": refuses(gradient_accumulation_steps=2),
    "use_ema": refuses(use_ema=True, ema_overwrite_frequency=1),
    "shape": shapes_of_gather,
    "labels": labels_of_build,
}


def gaps(strategy: tf.distribute.Strategy) -> dict[str, bool]:
    """Which of its gaps are still there, by name."""
    return {name: is_open(strategy) for name, is_open in GAPS.items()}
