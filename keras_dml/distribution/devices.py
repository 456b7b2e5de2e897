"""Devices of this machine that train as one."""

from __future__ import annotations

import logging

import keras

from keras_dml.distribution.strategies import current_strategy
from keras_dml.utils.arguments import check_count
from keras_dml.utils.tensorflow import tf

logger = logging.getLogger(__name__)


def use_devices(count: int | None = None) -> tf.distribute.Strategy:
    """Returns the strategy for training on several devices of this machine.

    Call it before TensorFlow computes anything, and create models in its scope.
    For several machines, use a strategy of TensorFlow, or `jax.distributed`.

    On JAX, batches are spread over the first `count` devices by
    `keras.distribution.DataParallel`: each is one array, in which everything
    is computed as on one device. Models must be created afterwards.

    Args:
        count: Number of devices: the first GPUs of this machine. Without a
            GPU, they are logical devices that share the cores of the CPU, for
            testing. With None, one device is used.

    Returns:
        A `MirroredStrategy`, or TensorFlow's default strategy for one device;
        on JAX, one that does nothing.

    Raises:
        ValueError: If there are fewer GPUs, or devices of JAX, than `count`, or
            if TensorFlow has already computed something.
    """
    if count is not None:
        check_count("use_devices", "count", count)
    if keras.backend.backend() == "jax":
        _spread_over(count or 1)
        return current_strategy()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and count is not None:
        if count > len(gpus):
            raise ValueError(
                "`count` of use_devices must be at most the number of GPUs. "
                f"Received: {count}, but this machine has {len(gpus)}. Use "
                f"--devices {len(gpus)}."
            )
        _check_not_started()
        tf.config.set_visible_devices(gpus[:count], "GPU")
    if count is None or count == 1:
        return tf.distribute.get_strategy()
    if gpus:
        return tf.distribute.MirroredStrategy()
    _check_not_started()
    (cpu, *_) = tf.config.list_physical_devices("CPU")
    device = tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [device] * count)
    logger.warning(
        "There is no GPU: %d replicas share the cores of the CPU. They compute "
        "the same as GPUs would, but not faster than a single replica.",
        count,
    )
    cpus = [f"CPU:{number}" for number in range(count)]
    return tf.distribute.MirroredStrategy(cpus)


def _spread_over(count: int) -> None:
    """Spreads batches over the first devices of JAX."""
    import jax

    devices = jax.local_devices()
    if count > len(devices):
        raise ValueError(
            "`count` of use_devices must be at most the number of devices of "
            f"JAX. Received: {count}, but there are {len(devices)}. Use "
            f"--devices {len(devices)}; for a test without GPUs, set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count}."
        )
    if count > 1:
        distribution = keras.distribution.DataParallel(devices=devices[:count])
        keras.distribution.set_distribution(distribution)


def _check_not_started() -> None:
    from tensorflow.python.eager import context

    if context.context()._initialized:
        raise ValueError(
            "use_devices must be called before TensorFlow computes anything, "
            "because devices are fixed by then. Received: a process in which "
            "it has. Call use_devices first, before tensors, layers and models "
            "are created; a loss of your own must not create any in its "
            "constructor, but in `build`."
        )
