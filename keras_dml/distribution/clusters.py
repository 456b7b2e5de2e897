"""Clusters: the strategy for some devices of this machine, or of several."""

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_dml.distribution.rendezvous import meet
from keras_dml.distribution.workers import worker_of
from keras_dml.utils.arguments import check_count

logger = logging.getLogger(__name__)

_HEARTBEAT = 30.0
"""Seconds without a sign of life after which a worker counts as lost."""


def connect(
    devices: int | None = None,
    workers: Sequence[str] | None = None,
    index: int | None = None,
    facts: Mapping[str, Any] | None = None,
    timeout: float = 300.0,
) -> tf.distribute.Strategy:
    """The strategy that trains on several devices, or on several machines.

    Call it before TensorFlow computes anything. Unlike TensorFlow's own
    strategy of several workers, it waits for the others for a bounded time,
    refuses workers that do not fit together, and ends the training when one
    of them has gone.

    Args:
        devices: Devices of this machine: its first GPUs. Without any GPU,
            logical devices of the CPU, which share its cores: to try what
            replicas compute. None: one device, or every GPU with `workers`.
        workers: Addresses of all workers, "host:port", in the same order
            everywhere. None: as the variable TF_CONFIG of the environment
            says, if it is set.
        index: Which of the workers this process is, from 0.
        facts: What must be the same for all workers, by name, as JSON has it.
        timeout: Seconds to wait for the other workers.

    Returns:
        A `MirroredStrategy`, a `MultiWorkerMirroredStrategy`, or TensorFlow's
        default for one device.

    Raises:
        ValueError: If there are fewer GPUs than `devices`, or the workers
            are not as described, or do not fit together.
        TimeoutError: If a worker has not come in time.
        RuntimeError: If TensorFlow has computed something already.
    """
    if devices is not None:
        check_count("connect", "devices", devices)
    resolver = _resolver(workers, index)
    gpus = _gpus(devices)
    if resolver is not None:
        addresses = _addresses(resolver)
        facts = {"workers": addresses, "devices": len(gpus), **(facts or {})}
        meet(addresses, worker_of(resolver).number, facts, timeout)
        _notice_lost_workers(resolver)
        return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    if devices is None or devices == 1:
        return tf.distribute.get_strategy()
    if gpus:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.MirroredStrategy(_logical_cpus(devices))


def _gpus(devices: int | None) -> list[Any]:
    """The GPUs to use; TensorFlow sees no others from now on."""
    gpus = tf.config.list_physical_devices("GPU")
    if devices is None or not gpus:
        return list(gpus)
    if devices > len(gpus):
        raise ValueError(
            "`devices` of connect must be at most the number of GPUs. "
            f"Received: {devices}, where there are {len(gpus)}. Use "
            f"--devices {len(gpus)}, or several --workers."
        )
    tf.config.set_visible_devices(gpus[:devices], "GPU")
    return list(gpus[:devices])


def _logical_cpus(count: int) -> list[str]:
    (cpu, *_) = tf.config.list_physical_devices("CPU")
    one = tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [one] * count)
    logger.warning(
        "There is no GPU: %d replicas share the cores of the CPU. They "
        "compute what GPUs would, and are no faster than one.",
        count,
    )
    return [f"CPU:{number}" for number in range(count)]


def _resolver(
    workers: Sequence[str] | None, index: int | None
) -> tf.distribute.cluster_resolver.ClusterResolver | None:
    """What says who the workers are, if there are several."""
    if workers is None:
        if index is not None:
            raise ValueError(
                "`index` of connect is for several `workers`. Received: "
                f"index={index} and no workers. Use --workers as well."
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
            "`index` of connect must say which of the workers this is, "
            f"in 0…{len(workers) - 1}. Received: index={index} and "
            f"{len(workers)} workers. Use --index."
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
            "TF_CONFIG of the environment must be JSON of a cluster of "
            "workers, at most one of them a chief, and this process's task. "
            f"Received: {given}. Use for instance "
            '{"cluster": {"worker": ["machine0:12345", "machine1:12345"]}, '
            '"task": {"type": "worker", "index": 0}}, or unset it.'
        ) from error
    return tf.distribute.cluster_resolver.TFConfigClusterResolver()


def _addresses(
    resolver: tf.distribute.cluster_resolver.ClusterResolver,
) -> list[str]:
    hosts = resolver.cluster_spec().as_dict()
    return [*hosts.get("chief", ()), *hosts.get("worker", ())]


def _notice_lost_workers(
    resolver: tf.distribute.cluster_resolver.ClusterResolver,
) -> None:
    """Has TensorFlow end what waits for a worker that has gone.

    It is what the strategy sets by itself, but for the times, for which
    TensorFlow has no public way.
    """
    from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
    from tensorflow.python.eager import context

    hosts = resolver.cluster_spec().as_dict()
    leader = "chief" if "chief" in hosts else "worker"
    milliseconds = int(_HEARTBEAT * 1000)
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=f"/job:{leader}/replica:0/task:0",
        heartbeat_timeout_in_ms=milliseconds,
        shutdown_barrier_timeout_in_ms=milliseconds,
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(
                name=job, num_tasks=len(addresses)
            )
            for job, addresses in hosts.items()
        ],
    )
