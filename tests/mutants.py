"""Mutants: do the tests that a row of papers.yaml names see its line go wrong?

    python -m tests.mutants                     # all, in minutes
    python -m tests.mutants Matryoshka "Eq. 9"  # rows with one of these texts

A mutant is one changed line in a copy of the package, in which the row's tests
run. If all of them pass, it survives, and they do not hold what the row says.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[1]


class Mutant(NamedTuple):
    """A row of papers.yaml, and a line that computes what it says."""

    row: str  # "PAPER | WHAT", as far as it is the only one.
    file: str  # In keras_dml/.
    line: str  # A part of it, once in the file.
    changed: str


MUTANTS = [
    Mutant("Divide and conquer | Sec. 4.2, clusters in the embedding",
           "callbacks/recluster.py", 'self.cluster_space == "features"',
           'self.cluster_space == "embedding"'),
    Mutant("Divide and conquer | Sec. 4.2, clusters in the embedding",
           "callbacks/recluster.py", "return self._kmeans(points)",
           "return np.roll(self._kmeans(points), 1)"),
    Mutant("Divide and conquer | Sec. 3.2, K-means",
           "callbacks/recluster.py", "return assignments, merged",
           "return assignments[::-1], merged"),
    Mutant("Matryoshka | Eq. 1", "losses/_matryoshka.py",
           "l2_normalize(prefix) if self.normalize else prefix", "prefix"),
    Mutant("Matryoshka | Eq. 1", "losses/_matryoshka.py",
           "self._prefix(refs, dim)", "refs"),
    Mutant("ABE | Eq. 9", "losses/regularizers.py",
           "squared = 2.0 - 2.0 * similarity", "squared = 2.0 - similarity"),
    Mutant("DCML | Eq. 5", "layers/compositor.py",
           "ops.where(x > 0, 1.0, -1.0)", "ops.where(x >= 0, 1.0, -1.0)"),
    Mutant("DCML | Eq. 7", "losses/regularizers.py",
           "-ops.sum(ops.log(strongest)", "-ops.mean(ops.log(strongest)"),
    Mutant("Relational knowledge distillation | Eq. 5",
           "losses/distillation.py", "size - 0.5)", "size)"),
]  # fmt: skip


def tests_of(mutant: Mutant) -> list[str]:
    """What papers.yaml names for the mutant's row."""
    papers = yaml.safe_load((ROOT / "docs/papers/papers.yaml").read_text())
    [tests] = [
        row["tests"]
        for paper in papers
        for row in paper["equations"]
        if f"{paper['paper'].partition(' (')[0]} | {row['what']}".startswith(
            mutant.row
        )
    ]
    return [f"tests/{test}" for test in tests]


def status(root: Path, tests: list[str]) -> int:
    """What pytest exits with: 0 if all pass, 1 if any fails."""
    options = ("-qx", "-p", "no:cacheprovider", "-m", "slow or not slow")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    if ended.returncode not in (0, 1):
        raise SystemExit(f"{tests} cannot run:\n{ended.stdout}{ended.stderr}")
    return ended.returncode


def outcomes(
    root: Path, mutants: list[Mutant]
) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant, and whether a test of its row fails."""
    if status(root, sorted({x for each in mutants for x in tests_of(each)})):
        raise SystemExit("The tests must pass before a line is changed.")
    for mutant in mutants:
        file = root / "keras_dml" / mutant.file
        text = file.read_text("utf-8")
        if text.count(mutant.line) != 1:
            raise SystemExit(f"{mutant.file} must have once: {mutant.line}")
        file.write_text(text.replace(mutant.line, mutant.changed), "utf-8")
        yield mutant, status(root, tests_of(mutant)) == 1
        file.write_text(text, "utf-8")


def main(texts: list[str]) -> None:
    chosen = [
        x for x in MUTANTS if any(text in x.row for text in texts or [""])
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("keras_dml", "tests", "recipes", "docs/papers"):
            shutil.copytree(ROOT / name, Path(folder, name))
        shutil.copy(ROOT / "pyproject.toml", folder)
        for mutant, is_killed in outcomes(Path(folder), chosen):
            word = "killed" if is_killed else "SURVIVED"
            print(f"{word}: {mutant.row}: {mutant.changed}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
