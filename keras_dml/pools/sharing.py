"""The environment of processes that share a machine."""

import os

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)


def sharing(threads: int) -> dict[str, str]:
    """Variables of each process, unless the environment has them already.

    Args:
        threads: Number of threads of each process.
    """
    defaults = dict.fromkeys(THREADS, str(threads))
    # Else the first of several takes all memory of a GPU.
    defaults["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    return {name: os.environ.get(name, x) for name, x in defaults.items()}


def gpu_of(number: int) -> dict[str, str]:
    """Variables that give a process one of the GPUs, if there are several.

    Args:
        number: Number of the process among those that share the machine,
            from 0. Processes take turns.
    """
    gpus = _gpus()
    if len(gpus) < 2:
        return {}
    return {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]}


def _gpus() -> list[str]:
    """Their names in the environment."""
    from keras_dml.utils.tensorflow import tf

    count = len(tf.config.list_physical_devices("GPU"))
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return chosen.split(",")[:count] if chosen else list(map(str, range(count)))
