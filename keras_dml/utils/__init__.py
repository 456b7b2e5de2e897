"""Helpers for every part of the package, which depend on none of them.

Open first: `arguments`, the checks behind every message, and `registry`, which
finds methods, losses and data sets by name. `serialization` makes configs from
constructors, `files` writes files whole or not at all, and `types` holds the
types that signatures and recipes share.

Imports: nothing else of the package.
"""

import os
import sys


def _search_alone() -> None:
    """Leaves faiss one thread in a process that was forked.

    The threads of OpenMP are not copied, and its first parallel region would
    wait for them for ever if the parent had already run one.
    """
    if faiss := sys.modules.get("faiss"):
        faiss.omp_set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_search_alone)
