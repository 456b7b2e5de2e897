"""Spread: a search whose panels are tasks of a pool, and are stored."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from keras_dml.evaluation.ranks.kept import KeptPanels, digest_of
from keras_dml.evaluation.ranks.panels import PanelSearch
from keras_dml.evaluation.ranks.ranks import Ranks
from keras_dml.evaluation.ranks.relevance import Images
from keras_dml.pools import Pool, RayActors, pool_of
from keras_dml.utils.files import one_at_a_time
from keras_dml.utils.progress import throughput
from keras_dml.utils.stored import Mapped, Stored
from keras_dml.utils.vectors import blocks

_MOST_PAIRS = 2 * 10**10
"""Maximum number of pairs in a panel: some minutes of one core."""

_FEWEST, _MANY = 512, 2048
"""Number of queries in a panel: with much fewer, a tenth of the time or more
is
spent on what panels have in common."""


_WORKERS = 16
"""Assumed number of workers, if it is unknown."""


@dataclass(frozen=True)
class Spread:
    """Where the panels of searches are computed and stored.

    Attributes:
        pool: The pool that computes the panels.
        workers: Its number of workers, if requested.
        folder: The folder of a search.
        is_resumed: Whether existing files may come from an earlier call.
        owner: The function that is called.
    """

    pool: Pool
    workers: int | None
    folder: Path
    is_resumed: bool
    owner: str

    def part(self, name: str) -> "Spread":
        """The spread for one of several searches."""
        return replace(self, folder=self.folder / name)

    def search(
        self,
        work: PanelSearch,
        panels: Sequence[slice],
        queries: Images,
        gallery: Images,
        progress: bool | None,
    ) -> Iterator[tuple[Ranks, ...]]:
        """Ranks, panel by panel, in order, when all panels are complete.

        Args:
            work: Computes a panel.
            panels: The panels that memory allows; they are divided further.
            queries, gallery, progress: See `search`.
        """
        given = queries, gallery, work.scores.distance, work.limits
        digest = digest_of(*given) if self.is_resumed else ""
        tasks = self._divided(panels, len(queries), len(gallery))
        kept = KeptPanels(self.folder, digest, tasks, self.owner)
        missing = kept.missing()
        there = len(queries) - sum(rows.stop - rows.start for rows in missing)
        done = self.pool.run(work, missing)
        about = len(queries), there, "queries", "Searching"
        with (
            contextlib.closing(done),  # type: ignore[type-var]
            throughput(*about, progress) as count,
        ):
            for panel in done:
                with _room_for("The ranks of a panel", self.folder):
                    kept.write(panel.task, panel.result)
                count(panel.task.stop - panel.task.start)
        for rows in kept.panels:
            yield tuple(ranks.unpacked() for ranks in kept.read(rows))

    def _divided(
        self, panels: Sequence[slice], queries: int, gallery: int
    ) -> list[slice]:
        """Panels that are a part of the work and take some minutes each."""
        parts = 4 * (self.workers or _WORKERS)
        even = max(_MANY, -(-queries // parts))
        most = min(even, max(_FEWEST, _MOST_PAIRS // gallery))
        return [
            slice(panel.start + part.start, panel.start + part.stop)
            for panel in panels
            for part in blocks(panel.stop - panel.start, most)
        ]


@contextlib.contextmanager
def spreading(
    workers: int | None,
    ray: str | bool | None,
    checkpoint: str | os.PathLike[str] | None,
    owner: str,
) -> Iterator[Spread | None]:
    """The spread requested by arguments; None if there is no request.

    Args:
        workers: Number of processes that search; None for one, or for the
            number of CPUs in the cluster.
        ray: Whether they are Ray actors, or the address of Ray.
        checkpoint: A folder that stores completed panels, or None.
        owner: The function with these arguments.

    Raises:
        BlockingIOError: If another process is using the folder.
    """
    if workers in (None, 1) and not ray and checkpoint is None:
        yield None
        return
    pool = _pool(workers, ray)
    if checkpoint is not None:
        folder = Path(checkpoint).expanduser()
        with one_at_a_time(folder, "evaluation"):
            yield Spread(pool, workers, folder, True, owner)
        return
    with tempfile.TemporaryDirectory(prefix="keras_dml-") as name:
        yield Spread(pool, workers, Path(name), False, owner)


def _pool(workers: int | None, ray: str | bool | None) -> Pool:
    if not ray:
        return pool_of(workers)
    # GPUs of the cluster have nothing to do here.
    return RayActors(workers, "auto" if ray is True else ray, gpus=0)


@contextlib.contextmanager
def in_files(given: Sequence[Images]) -> Iterator[list[Images]]:
    """The same images, with embeddings in files, which processes share.

    Raises:
        OSError: If there is not enough space for the files.
    """
    with tempfile.TemporaryDirectory(prefix="keras_dml-") as name:
        yield [
            replace(
                images, embeddings=_in_file(images, Path(name) / f"{i}.npy")
            )
            for i, images in enumerate(given)
        ]


def _in_file(images: Images, path: Path) -> Stored:
    x = images.embeddings
    if isinstance(x, Stored):
        return x
    with _room_for(f"Embeddings of {x.nbytes:,} bytes, for workers", path):
        np.save(path, x)
    return Mapped(np.load(path, mmap_mode="r"), x.dtype)


@contextlib.contextmanager
def _room_for(what: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"{what} cannot be written: {error.strerror}. Set TMPDIR to a "
            "folder with enough space, or use one as `checkpoint`",
            str(path),
        ) from error
