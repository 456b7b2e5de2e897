"""Plan and journal of a benchmark: recipes with seeds, and how they ended."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from keras_dml.recipes import Recipe, RecipeError, dump, load
from keras_dml.resuming import parsed_every
from keras_dml.utils.arguments import check_count

JOURNAL = "runs.jsonl"
SEPARATOR = "::"


@dataclass(frozen=True)
class Run:
    """One training run: its recipe, with its seed, and its folder.

    Its key is the name of the recipe with the seed, its digest the SHA-256 of
    the complete recipe, and its log the file that receives what it prints.
    """

    recipe: Recipe
    folder: Path
    save_every: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.recipe.name, self.recipe.seed

    @property
    def digest(self) -> str:
        return hashlib.sha256(dump(self.recipe).encode()).hexdigest()

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")


@dataclass(frozen=True)
class Plan:
    """The runs of a benchmark.

    Attributes:
        recipes: Their recipes, in the order of the tables.
        seeds: Number of seeds; they are 0, 1, ….
        output: The benchmark's folder.
        baseline: Name of the recipe that others are compared with.
        save_every: How often runs write their state within epochs.
    """

    recipes: tuple[Recipe, ...]
    seeds: int
    output: Path
    baseline: str
    save_every: str | None = None

    def runs(self) -> list[Run]:
        """All runs: every recipe with the first seed, then the second."""
        return [
            Run(
                recipe.model_copy(update={"seed": seed}),
                self.folder(recipe.name, seed),
                self.save_every,
            )
            for seed in range(self.seeds)
            for recipe in self.recipes
        ]

    def folder(self, recipe: str, seed: int) -> Path:
        """The folder of a recipe's run with a seed."""
        return self.output / recipe / f"seed-{seed}"


def read_plan(
    recipes: Sequence[str],
    seeds: int,
    output: str | os.PathLike[str],
    settings: Sequence[str] = (),
    baseline: str | None = None,
    save_every: str | None = None,
) -> Plan:
    """The plan of a benchmark.

    Args:
        recipes: Paths of recipes, each with settings of its own if any:
            "PATH::key.key=value::key=value". Files whose name starts with
            an underscore are left out, as they are only bases.
        seeds: Number of seeds.
        output: Folder of the benchmark.
        settings: Settings of all recipes; a recipe's own come after them.
        baseline: Name of a recipe; None for the first.
        save_every: As for `train`.

    Raises:
        RecipeError: If a recipe cannot be used, if two have one name, or
            if a setting is about the seed.
        ValueError: If an argument is invalid.
    """
    check_count("benchmark", "seeds", seeds)
    texts, loaded = [], []
    for text in recipes:
        path, *changes = text.split(SEPARATOR)
        if Path(path).name.startswith("_"):
            continue
        for setting in (*settings, *changes):
            if setting.partition("=")[0] == "seed":
                raise RecipeError(
                    "`seed` must not be set in a benchmark, which trains every "
                    "recipe with the seeds 0, 1, …. Received: the setting "
                    f"{setting!r}. Use --seeds for their number."
                )
        texts.append(text)
        loaded.append(load(path, (*settings, *changes)))
    names = [recipe.name for recipe in loaded]
    if not names:
        raise ValueError(
            "`recipes` of benchmark must name a recipe that is not only a "
            f"base. Received: {list(recipes)}."
        )
    for position, name in enumerate(names):
        first = names.index(name)
        if first < position:
            raise RecipeError(
                "Recipes of a benchmark must have different names. "
                f"Received: {name!r} twice, from {texts[first]} and "
                f"{texts[position]}. Rename one: "
                f"{texts[position]}{SEPARATOR}name={name}-2"
            )
    baseline = names[0] if baseline is None else baseline
    if baseline not in names:
        raise ValueError(
            "`baseline` of benchmark must be the name of one of its recipes. "
            f"Received: baseline={baseline!r}. The names are {names}."
        )
    parsed_every(save_every)
    return Plan(tuple(loaded), seeds, Path(output), baseline, save_every)


@dataclass(frozen=True)
class Entry:
    """How a run ended: a line of the journal.

    Attributes:
        digest: SHA-256 of the complete recipe.
        error: Why the run failed; None if it did not.
        metrics: Metrics of the best model on test.
        seconds: Duration of the training, with evaluation and division.
        untouched: Of a pretrained network: `baseline` of the outcome, and its
            metrics `before` training.

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
    untouched: dict[str, Any] | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Name of the recipe, and the seed, as for `Run`."""
        return self.recipe, self.seed

    def __str__(self) -> str:
        if self.metrics is None:
            return f"failed: {self.error}"
        values = ", ".join(f"{k} {v:.4f}" for k, v in self.metrics.items())
        return f"{values} ({self.seconds:.0f} s)"


def read_journal(folder: Path) -> dict[tuple[str, int], Entry]:
    """The last entry of each run of a benchmark, by recipe and seed.

    A line without an end, because the power went, counts as not written.
    """
    path = folder / JOURNAL
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    entries = {}
    for number, line in enumerate(lines, 1):
        try:
            entry = Entry(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"Line {number} of {path} is not an entry of a benchmark: "
                f"{error}. Remove the line to repeat its run."
            ) from None
        entries[entry.key] = entry
    return entries


def append_entry(folder: Path, entry: Entry) -> None:
    """Writes a line, which is on the disk when this returns."""
    line = json.dumps(asdict(entry), ensure_ascii=False) + "\n"
    path = folder / JOURNAL
    with path.open("ab+") as file:
        # Without a last line that has no end.
        file.truncate(path.read_bytes().rfind(b"\n") + 1)
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())
