"""Target: the folder that a run of embedding writes, anew or going on."""

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
"""Shards that are looked at at once, as object stores take their time."""


class Target:
    """The folder that a run writes.

    Args:
        storage: The folder.
        run: The run.

    Raises:
        FileExistsError: If there is something else in the folder.
        NotADirectoryError: If it is a file.
    """

    def __init__(self, storage: Storage, run: Run) -> None:
        self._storage = storage
        self._run = run
        odd = [name for name in storage.sizes() if not _is_ours(name)]
        if odd:
            raise FileExistsError(
                "The folder to write embeddings to must be new, or one of "
                f"embeddings. Received: {storage.name!r}, in which there is "
                f"{odd[0]!r}. Use another folder."
            )

    def lock(self) -> AbstractContextManager[None]:
        """Keeps other writers out; BlockingIOError if there is one."""
        return self._storage.lock("embedding")

    def found(self, overwrite: bool) -> dict[int, Written]:
        """The shards of the run that are there, by their numbers.

        Those that were cut off are not among them.

        Args:
            overwrite: Whether to remove what is there.

        Raises:
            FileExistsError: If there are shards of another run.
            ValueError: If what says of which run they are cannot be read.
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
        """Writes which run it is that has not ended."""
        self._storage.write(RUN, Manifest(self._run).to_json().encode())
        self._storage.remove(MANIFEST)

    def end(self, manifest: Manifest) -> None:
        """Writes what says that all shards are there."""
        self._storage.write(MANIFEST, manifest.to_json().encode())
        self._storage.remove(RUN)

    def is_ended(self) -> bool:
        """Whether the folder is complete."""
        return MANIFEST in self._storage.sizes()

    def _clear(self) -> None:
        # First what says that shards belong together.
        for name in (MANIFEST, RUN, *self._storage.sizes()):
            self._storage.remove(name)

    def _before(self, sizes: dict[str, int]) -> Manifest:
        """What is known of the run whose shards are there."""
        name = MANIFEST if MANIFEST in sizes else RUN
        if name not in sizes:
            raise self._refusal("shards without anything that says of what")
        where = f"{name} in {self._storage.name!r}"
        before = Manifest.from_json(self._storage.read(name), where)
        if difference := before.run.difference(self._run):
            raise self._refusal(f"now {difference}")
        return before

    def _written(self, name: str, size: int) -> Written | None:
        """What a shard says of itself; None if it was cut off."""
        try:
            with self._storage.open(name) as file:
                head = read_head(file)
        except ValueError:
            return None
        if head.run != self._run.id:
            raise self._refusal(f"{name} of another run")
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
    """The shards by their numbers."""
    return tuple(written[number].entry for number in sorted(written))
