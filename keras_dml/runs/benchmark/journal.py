"""The journal of a benchmark: one line for each run that has ended."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

JOURNAL = "runs.jsonl"


@dataclass(frozen=True)
class Entry:
    """How a run ended.

    Attributes:
        recipe: Name of the recipe.
        seed: The run's seed.
        digest: SHA-256 of the complete recipe.
        error: Why the run failed; None if it did not.
        metrics: Metrics of the best model on test.
        seconds: Duration of the training, with evaluation and division.

    The other attributes are those of `Outcome`.
    """

    recipe: str
    seed: int
    digest: str
    error: str | None = None
    metrics: dict[str, float] | None = None
    best_epoch: int | None = None
    seconds: float | None = None
    images_per_second: float | None = None
    test_set: str | None = None
    environment: dict[str, str] | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Name of the recipe, and the seed."""
        return self.recipe, self.seed


class Journal:
    """Entries in a file of a benchmark's folder, which survives being killed.

    A line is written at once and flushed to the disk. One that was not
    written to its end, because the power went, counts as not written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL

    def entries(self) -> dict[tuple[str, int], Entry]:
        """The last entry of each run, by recipe and seed.

        Raises:
            ValueError: If the file is damaged.
        """
        if not self.path.exists():
            return {}
        lines = self.path.read_bytes().split(b"\n")[:-1]
        entries = {}
        for number, line in enumerate(lines, 1):
            try:
                entry = Entry(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"Line {number} of {self.path} is not an entry of a "
                    f"benchmark: {error}. Remove the line to repeat its run."
                ) from None
            entries[entry.key] = entry
        return entries

    def append(self, entry: Entry) -> None:
        """Adds an entry."""
        line = json.dumps(asdict(entry), ensure_ascii=False) + "\n"
        with self.path.open("ab+") as file:
            # Without a last line that has no end.
            file.truncate(self.path.read_bytes().rfind(b"\n") + 1)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
