"""Completed panels of a search, stored as files in a folder."""

import io
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128, xxh3_128_digest

from keras_dml.evaluation.label_sets import LabelSets, Targets
from keras_dml.evaluation.ranks.packed import PackedRanks
from keras_dml.evaluation.ranks.ranked_positives import Limits
from keras_dml.evaluation.ranks.relevance import Images
from keras_dml.utils.files import write_atomically
from keras_dml.utils.vectors import blocks

logger = logging.getLogger(__name__)

PLAN = "search.json"
"""The file that identifies the search and its panels."""

_FORMAT = 1

_DIGEST = 16

_ELEMENTS = 2**20


class KeptPanels:
    """The folder of a search: its plan, and one file per panel.

    A file is written completely or not at all, and starts with its checksum. A
    damaged file is treated as missing.

    Args:
        folder: The folder, which is created if necessary.
        search: What distinguishes the search from others; see `digest_of`.
        panels: Its panels. If the folder already has a plan, its panels are
            used.
        owner: The owner of the folder, for messages.

    Attributes:
        panels: The panels, in order.

    Raises:
        ValueError: If the folder belongs to a different search.
        OSError: If it cannot be written.
    """

    def __init__(
        self, folder: Path, search: str, panels: Sequence[slice], owner: str
    ) -> None:
        self._folder = folder
        self._search = search
        plan = folder / PLAN
        if not plan.exists():
            edges = [[rows.start, rows.stop] for rows in panels]
            content = {"format": _FORMAT, "search": search, "panels": edges}
            write_atomically(plan, json.dumps(content))
        try:
            content = json.loads(plan.read_text())
            known = content["format"], content["search"]
            self.panels = [slice(*edges) for edges in content["panels"]]
        except (ValueError, KeyError, TypeError):
            known = None, None
        if known != (_FORMAT, search):
            raise ValueError(
                f"`checkpoint` of {owner} must be a folder of the same "
                "evaluation, with the same embeddings, labels, protocol, "
                "distance and ranks required by its metrics. Received: "
                f"{str(folder)!r}, which belongs to a different one. Use "
                "another folder, or "
                "remove this one."
            )

    def missing(self) -> list[slice]:
        """Panels that have not been completed."""
        return [rows for rows in self.panels if not self._is_there(rows)]

    def write(self, rows: slice, found: Sequence[PackedRanks]) -> None:
        """Stores a panel: its ranks for each relevance."""
        arrays: dict[str, NDArray[Any]] = {
            f"{number}.{name}": values
            for number, ranks in enumerate(found)
            for name, values in ranks.arrays().items()
        }
        arrays["search"] = np.array(self._search)
        arrays["count"] = np.array(len(found))
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
        packed = content.getvalue()
        digest = xxh3_128_digest(packed)
        write_atomically(self._path(rows), digest + packed)

    def read(self, rows: slice) -> tuple[PackedRanks, ...]:
        """Reads a stored panel.

        Raises:
            OSError: If it cannot be read.
            ValueError: If it is damaged, or belongs to a different search.
        """
        content = self._path(rows).read_bytes()
        digest, packed = content[:_DIGEST], content[_DIGEST:]
        if xxh3_128_digest(packed) != digest:
            raise ValueError("its checksum differs")
        with np.load(io.BytesIO(packed), allow_pickle=False) as file:
            if str(file["search"]) != self._search:
                raise ValueError("it belongs to another search")
            parts: list[dict[str, NDArray[Any]]] = [
                {} for _ in range(int(file["count"]))
            ]
            for key in set(file.files) - {"search", "count"}:
                number, _, name = key.partition(".")
                parts[int(number)][name] = file[key]
        return tuple(map(PackedRanks.of_arrays, parts))

    def _is_there(self, rows: slice) -> bool:
        try:
            self.read(rows)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            path = self._path(rows)
            logger.warning(
                "%s is damaged (%s) and is computed again.", path, error
            )
            return False
        return True

    def _path(self, rows: slice) -> Path:
        return self._folder / f"panel-{rows.start:010}-{rows.stop:010}.ranks"


def digest_of(
    queries: Images, gallery: Images, distance: str, limits: Limits
) -> str:
    """A checksum of all that ranks depend on; reads all embeddings once."""
    state = xxh3_128(repr((distance, limits, queries is gallery)).encode())
    for images in [queries] if queries is gallery else [queries, gallery]:
        x = images.embeddings
        state.update(repr((x.shape, str(x.dtype))).encode())
        for rows in blocks(len(x), max(1, _ELEMENTS // x.shape[1])):
            state.update(np.ascontiguousarray(x[rows]).data)
        state.update(images.rows.tobytes())
        if images.groups is not None:
            state.update(images.groups.tobytes())
        for level, targets in images.targets.items():
            state.update(repr((level, len(targets))).encode())
            _update(state, targets)
    return state.hexdigest()


def _update(state: xxh3_128, targets: Targets) -> None:
    if not isinstance(targets, LabelSets):
        state.update(np.ascontiguousarray(targets).data)
        return
    state.update(targets.gain.encode())
    for part in (targets.matrix.indptr, targets.matrix.indices):
        state.update(part.astype(np.int64).tobytes())
