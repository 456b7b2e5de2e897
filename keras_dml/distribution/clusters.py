"""Clusters: strategies for devices of one machine or of several."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_dml.distribution.strategies import current_strategy
from keras_dml.distribution.workers import check_same, worker_of
from keras_dml.utils.arguments import check_count
from keras_dml.utils.tensorflow import tf

logger = logging.getLogger(__name__)

_HEARTBEAT = 30.0
"""Seconds without a heartbeat after which a worker is considered lost."""


def connect(
    devices: int | None = None,
    workers: Sequence[str] | None = None,
    index: int | None = None,
    facts: Mapping[str, Any] | None = None,
    timeout: float = 300.0,
) -> tf.distribute.Strategy:
    """The strategy for training on several devices or machines.

    Call it before TensorFlow computes anything. Compared with TensorFlow's own
    multi-worker strategy, it waits for the other workers for a limited time,
    rejects workers whose settings differ, and ends the training if one of them
    is lost.

    Args:
        devices: Number of devices of this machine to use. These are its first
            GPUs. Without a GPU, they are logical devices that share the cores
            of the CPU, for testing. With None, one device is used, or every GPU
            if there are several `workers`.
        workers: Addresses of all workers, "host:port", in the same order on
            every worker. With None, they are read from the environment variable
            TF_CONFIG, if it is set.
        index: The index of this process in `workers`, from 0.
        facts: JSON values, by name, that must be the same on all workers. They
            are compared once all workers are connected.
        timeout: Seconds to wait for the other workers.

    On JAX, batches are spread over the first `devices` of every worker by
    `keras.distribution.DataParallel`: each is one array, in which everything
    is computed as on one device. Models must be created afterwards. Workers
    are connected by `jax.distributed`, at the address of the first; it ends
    the process if one of them is missing or lost.

    Returns:
        A `MirroredStrategy`, a `MultiWorkerMirroredStrategy`, or TensorFlow's
        default strategy for one device; on JAX, one that does nothing.

    Raises:
        ValueError: If there are fewer GPUs than `devices`, if `workers` or
            `index` is invalid, if `facts` differ between workers, or if
            TensorFlow has already computed something.
        TimeoutError: If a worker does not connect in time.
        ConnectionError: If this worker cannot start, for instance as another
            process uses its port.
    """
    if devices is not None:
        check_count("connect", "devices", devices)
    if keras.backend.backend() == "jax":
        _connect_jax(devices, workers, index, facts, timeout)
        return current_strategy()
    resolver = _resolver(workers, index)
    gpus = _gpus(devices)
    if resolver is not None:
        _check_not_started()
        hosts = resolver.cluster_spec().as_dict()
        addresses = [*hosts.get("chief", ()), *hosts.get("worker", ())]
        strategy = _started(resolver, addresses, timeout)
        facts = {"workers": addresses, "devices": len(gpus), **(facts or {})}
        check_same("recipe, settings and versions", facts, strategy)
        return strategy
    if devices is None or devices == 1:
        return tf.distribute.get_strategy()
    if gpus:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.MirroredStrategy(_logical_cpus(devices))


def _connect_jax(
    devices: int | None,
    workers: Sequence[str] | None,
    index: int | None,
    facts: Mapping[str, Any] | None,
    timeout: float,
) -> None:
    import jax

    if workers is not None:
        _check_workers(workers, index)
    several = workers is not None and len(workers) > 1
    if several:
        _join_jax(list(workers or ()), index, timeout)
    count = devices or (jax.local_device_count() if several else 1)
    if count > jax.local_device_count():
        raise ValueError(
            "`devices` of connect must be at most the number of devices of "
            f"JAX. Received: {count}, but there are "
            f"{jax.local_device_count()}. Use --devices "
            f"{jax.local_device_count()}; for a test without GPUs, set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count}."
        )
    if several:
        strategy = current_strategy()
        facts = {"workers": workers, "devices": count, **(facts or {})}
        check_same("recipe, settings and versions", facts, strategy)
    if several or count > 1:
        found = [
            device
            for process in range(jax.process_count())
            for device in jax.local_devices(process)[:count]
        ]
        distribution = keras.distribution.DataParallel(devices=found)
        keras.distribution.set_distribution(distribution)


def _join_jax(workers: list[str], index: int | None, timeout: float) -> None:
    import jax

    # What ends a training by SIGTERM is `callbacks.Resume`.
    jax.config.update("jax_enable_preemption_service", False)
    # On CPUs, what workers tell each other could overtake a step.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    logger.warning(
        "Worker %s of %d waits up to %g s for all others at %s; then JAX ends "
        "it. Start all with the same --workers, each with its own --index.",
        index,
        len(workers),
        timeout,
        workers[0],
    )
    jax.distributed.initialize(
        workers[0],
        len(workers),
        index,
        initialization_timeout=max(1, round(timeout)),
        heartbeat_timeout_seconds=round(_HEARTBEAT),
    )


def _check_not_started() -> None:
    from tensorflow.python.eager import context

    if context.context()._initialized:
        raise ValueError(
            "connect must be called before TensorFlow computes anything, as "
            "devices and workers are fixed by then. Received: a process in "
            "which it has. Call connect first, before tensors, layers and "
            "models are created; a loss of your own must not create any in its "
            "constructor, but in `build`."
        )


def _gpus(devices: int | None) -> list[Any]:
    """The GPUs to use; TensorFlow sees no others from now on."""
    gpus = tf.config.list_physical_devices("GPU")
    if devices is None or not gpus:
        return list(gpus)
    if devices > len(gpus):
        raise ValueError(
            "`devices` of connect must be at most the number of GPUs. "
            f"Received: {devices}, but this machine has {len(gpus)}. Use "
            f"--devices {len(gpus)}, or several --workers."
        )
    _check_not_started()
    tf.config.set_visible_devices(gpus[:devices], "GPU")
    return list(gpus[:devices])


def _logical_cpus(count: int) -> list[str]:
    _check_not_started()
    (cpu, *_) = tf.config.list_physical_devices("CPU")
    one = tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [one] * count)
    logger.warning(
        "There is no GPU: %d replicas share the cores of the CPU. They compute "
        "the same as GPUs would, but not faster than a single replica.",
        count,
    )
    return [f"CPU:{number}" for number in range(count)]


def _resolver(
    workers: Sequence[str] | None, index: int | None
) -> tf.distribute.cluster_resolver.ClusterResolver | None:
    """The cluster of workers; None if there is only one."""
    if workers is None:
        if index is not None:
            raise ValueError(
                "`index` of connect must only be given with several "
                f"`workers`. Received: index={index} without workers. Use "
                "--workers as well."
            )
        return _resolver_of_environment()
    _check_workers(workers, index)
    if len(workers) == 1:
        return None
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(workers)}),
        task_type="worker",
        task_id=index,
        rpc_layer="grpc",
    )


def _check_workers(workers: Sequence[str], index: int | None) -> None:
    for address in workers:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ValueError(
                "`workers` of connect must be addresses, host:port. "
                f"Received: {address!r}. Use for instance "
                "--workers machine0:12345,machine1:12345."
            )
    if len(set(workers)) < len(workers):
        raise ValueError(
            "`workers` of connect must be different addresses. Received: "
            f"{', '.join(workers)}."
        )
    if index is None or not 0 <= index < len(workers):
        raise ValueError(
            "`index` of connect must be the index of this process among the "
            f"workers, from 0 to {len(workers) - 1}. Received: index={index} "
            f"with {len(workers)} workers. Use --index."
        )


def _resolver_of_environment() -> (
    tf.distribute.cluster_resolver.ClusterResolver | None
):
    given = os.environ.get("TF_CONFIG")
    if not given:
        return None
    try:
        config = json.loads(given)
        cluster, task = config.get("cluster", {}), config.get("task", {})
        count = sum(len(addresses) for addresses in cluster.values())
        if count < 2:
            return None
        kind, number = task["type"], int(task["index"])
        if not set(cluster) <= {"chief", "worker"} or kind not in cluster:
            raise ValueError
        if not 0 <= number < len(cluster[kind]):
            raise ValueError
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(
            "The environment variable TF_CONFIG must be JSON that describes a "
            "cluster of workers, with at most one chief, and the task of this "
            f"process. Received: {given}. Use for instance "
            '{"cluster": {"worker": ["machine0:12345", "machine1:12345"]}, '
            '"task": {"type": "worker", "index": 0}}, or unset it.'
        ) from error
    return tf.distribute.cluster_resolver.TFConfigClusterResolver()


def _started(
    resolver: tf.distribute.cluster_resolver.ClusterResolver,
    addresses: Sequence[str],
    timeout: float,
) -> tf.distribute.MultiWorkerMirroredStrategy:
    """The strategy, once all workers are connected."""
    number = worker_of(resolver).number
    _set_timeouts(resolver.cluster_spec().as_dict(), timeout)
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except tf.errors.DeadlineExceededError as error:
        raise TimeoutError(
            f"Not all of {len(addresses)} workers did connect within "
            f"{timeout:g} s. Start all with the same --workers, each with its "
            f"own --index, on hosts that can reach {addresses[0]}. TensorFlow "
            f"reports: {_brief(error)}"
        ) from error
    except tf.errors.OpError as error:
        raise ConnectionError(
            f"Worker {number} cannot start at {addresses[number]}. Stop the "
            "process that uses its port, or choose another in --workers, and "
            "give each worker its own --index. TensorFlow reports: "
            f"{_brief(error)}"
        ) from error


def _brief(error: tf.errors.OpError) -> str:
    """What TensorFlow says, without its repetition by gRPC."""
    message: str = error.message
    return message.partition("\nAdditional GRPC")[0].strip()


def _set_timeouts(hosts: Mapping[str, Sequence[str]], timeout: float) -> None:
    """Makes TensorFlow stop waiting for a worker that is missing or lost.

    These are the strategy's own settings with other timeouts, which cannot be
    set by TensorFlow's public API.
    """
    from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
    from tensorflow.python.eager import context

    leader = "chief" if "chief" in hosts else "worker"
    milliseconds = int(_HEARTBEAT * 1000)
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=f"/job:{leader}/replica:0/task:0",
        cluster_register_timeout_in_ms=int(timeout * 1000),
        heartbeat_timeout_in_ms=milliseconds,
        shutdown_barrier_timeout_in_ms=milliseconds,
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(
                name=job, num_tasks=len(addresses)
            )
            for job, addresses in hosts.items()
        ],
    )
    # Otherwise the first worker waits for the others for an hour.
    settings = context.context().coordination_service
    settings.cluster_register_with_barrier = True
