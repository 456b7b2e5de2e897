"""Target: the folder that a run writes, new or to be continued."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

from keras_dml.embedding.manifest import (
    MANIFEST,
    RUN,
    Manifest,
    Run,
    ShardEntry,
)
from keras_dml.embedding.shard_file import read_head
from keras_dml.embedding.shard_work import Written
from keras_dml.embedding.storage import Storage

_SHARD = re.compile(r"shard-(\d{5,})\.parquet")

_THREADS = 16
"""Number of shards to check at the same time, as object stores are slow."""


class Target:
    """The folder that a run writes.

    Args:
        storage: The folder.
        run: The run.

    Raises:
        FileExistsError: If the folder holds other files.
        NotADirectoryError: If the folder is a file.
    """

    def __init__(self, storage: Storage, run: Run) -> None:
        self._storage = storage
        self._run = run
        odd = [name for name in storage.sizes() if not _is_ours(name)]
        if odd:
            raise FileExistsError(
                "The folder to write embeddings to must be new or contain "
                f"only embeddings. Received: {storage.name!r}, which contains "
                f"{odd[0]!r}. Use another folder."
            )

    def lock(self) -> AbstractContextManager[None]:
        """Locks the folder; BlockingIOError if there is another writer."""
        return self._storage.lock("embedding")

    def found(self, overwrite: bool) -> dict[int, Written]:
        """The existing shards of the run, by number.

        Truncated shards are left out.

        Args:
            overwrite: Whether to remove everything in the folder first.

        Raises:
            FileExistsError: If there are shards of another run.
            ValueError: If the file that identifies the run cannot be read.
        """
        self._storage.sweep()
        if overwrite:
            self._clear()
        sizes = self._storage.sizes()
        shards = [name for name in sizes if _SHARD.fullmatch(name)]
        before = self._before(sizes) if shards else None
        with ThreadPoolExecutor(_THREADS) as pool:
            found = pool.map(self._written, shards, map(sizes.get, shards))
        whole = {x.entry.number: x for x in found if x is not None}
        if before is not None and before.shards:
            listed = set(before.shards)
            whole = {k: x for k, x in whole.items() if x.entry in listed}
        return whole

    def open(self) -> None:
        """Marks the run as unfinished."""
        self._storage.write(RUN, Manifest(self._run).to_json().encode())
        self._storage.remove(MANIFEST)

    def end(self, manifest: Manifest) -> None:
        """Marks the run as complete, by its manifest."""
        self._storage.write(MANIFEST, manifest.to_json().encode())
        self._storage.remove(RUN)

    def is_ended(self) -> bool:
        """Whether the folder is complete."""
        return MANIFEST in self._storage.sizes()

    def _clear(self) -> None:
        # First the files that identify the run of the shards.
        for name in (MANIFEST, RUN, *self._storage.sizes()):
            self._storage.remove(name)

    def _before(self, sizes: dict[str, int]) -> Manifest:
        """The manifest of the run that wrote the existing shards."""
        name = MANIFEST if MANIFEST in sizes else RUN
        if name not in sizes:
            raise self._refusal(f"shards without {MANIFEST} or {RUN}")
        where = f"{name} in {self._storage.name!r}"
        before = Manifest.from_json(self._storage.read(name), where)
        if difference := before.run.difference(self._run):
            raise self._refusal(f"now {difference}")
        return before

    def _written(self, name: str, size: int) -> Written | None:
        """A shard by its own metadata; None if it is truncated."""
        try:
            with self._storage.open(name) as file:
                head = read_head(file)
        except ValueError:
            return None
        if head.run != self._run.id:
            raise self._refusal(f"{name}, which belongs to another run")
        written = Written.of(head, size)
        return written if written.entry.name == name else None

    def _refusal(self, received: str) -> FileExistsError:
        return FileExistsError(
            f"The embeddings in {self._storage.name!r} must belong to the "
            f"same run to be continued. Received: {received}. Use another "
            "folder, or --overwrite (overwrite=True) to remove them."
        )


def _is_ours(name: str) -> bool:
    return name in (RUN, MANIFEST) or _SHARD.fullmatch(name) is not None


def in_order(written: dict[int, Written]) -> tuple[ShardEntry, ...]:
    """The shards in the order of their numbers."""
    return tuple(written[number].entry for number in sorted(written))
