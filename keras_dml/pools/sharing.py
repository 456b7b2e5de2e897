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
