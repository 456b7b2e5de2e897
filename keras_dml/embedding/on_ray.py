"""Shards written by actors on a Ray cluster, by Ray Data and its retries.

A task is a shard, which an actor writes aside and renames. Ray restarts an
actor that dies and repeats its task, so no row is lost or written twice.
"""

import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from keras_dml.utils.arguments import import_extra

_RETRIES = 3
"""How many times Ray restarts an actor, and repeats a task, that died."""

_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
"""Hides GPUs from TensorFlow and JAX. Ray does so for some versions only."""


class ShardActor:
    """Writes shards in a process of Ray, which has a copy of the model."""

    def __init__(self, reference: Any) -> None:
        self._reference = reference
        self._writer: Any = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the shard that a batch names; returns its number of rows."""
        import ray

        try:
            if self._writer is None:
                [writer] = ray.get([self._reference])
                # Unpickling may change a model.
                identity = writer.run.model
                identity.check(writer.model, "an actor of embed_shards")
                self._writer = writer
            rows = self._writer(str(batch["item"][0]))
            return {"rows": [rows], "error": [""]}
        # The user can fix these, and another attempt would fail again.
        except (ValueError, OSError, ImportError) as error:
            return {"rows": [0], "error": [f"{type(error).__name__}: {error}"]}


def write_on_ray(
    writer: Any, names: list[str], address: str | None
) -> Iterator[int]:
    """Writes shards by actors, one for each GPU of a cluster or else each CPU.

    `writer` is a `ShardWriter`, and `address` is as for `ray.init`. Yields the
    number of rows of each shard when it is written. An `OSError` means that the
    cluster cannot be joined, or that an actor failed.
    """
    data = import_extra("ray of embed_shards", "ray.data", "ray")
    import ray

    data.DataContext.get_current().enable_progress_bars = False
    with _connect(address):
        resources = ray.cluster_resources()
        kind = "GPU" if resources.get("GPU") else "CPU"
        count = max(1, min(len(names), int(resources.get(kind, 1))))
        # Actors may run on any machine, so the environment is sent along.
        environment = {
            "KERAS_BACKEND": keras.config.backend(),
            "TF_NUM_INTRAOP_THREADS": "1" if kind == "CPU" else "0",
            **(_NO_GPU if kind == "CPU" else {}),
        }
        reference = ray.put(writer)  # It must live as long as actors restart.
        shards = data.from_items(names, override_num_blocks=len(names))
        results = shards.map_batches(
            ShardActor,
            batch_size=1,
            fn_constructor_args=(reference,),
            compute=data.ActorPoolStrategy(size=count),
            num_cpus=1,
            num_gpus=1 if kind == "GPU" else 0,
            runtime_env={"env_vars": environment},
            max_restarts=_RETRIES,
            max_task_retries=_RETRIES,
        )
        try:
            for result in results.iter_rows():
                if result["error"]:
                    raise ChildProcessError(
                        f"An actor of Ray failed. {result['error']}"
                    )
                yield int(result["rows"])
        except ray.exceptions.RayError as error:  # Actors died again.
            raise ChildProcessError(
                f"Ray could not write all shards: {error}. Those that are "
                "finished are kept; the same call continues."
            ) from error


def _connect(address: str | None) -> AbstractContextManager[Any]:
    """Connects to a cluster until a block ends, unless this process has one."""
    import ray

    if ray.is_initialized():
        return nullcontext()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        context = ray.init(address, log_to_driver=False, logging_level="error")
    except Exception as error:  # Ray raises errors of several kinds.
        raise OSError(f"The Ray cluster cannot be joined: {error}") from error
    logging.getLogger("ray.data").setLevel("WARNING")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray sets its own.
    return context
