"""Large checks are due when what they look at changed since they last passed.

`python .ci/rooms.py CHECK` prints whether it is "due" or has "passed";
`python .ci/rooms.py CHECK passed` writes a digest of its files, and of what
its own extras ask for, to `.ci/passed.json`, which is committed.
"""

import ast
import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PASSED = ROOT / ".ci" / "passed.json"
# Files and folders by check; tests that have its mark belong to it, too.
ROOMS = {
    "engines": (
        "keras_dml/embedding",
        "keras_dml/search",
    ),
    "notebooks": ("docs/notebooks", "tests/goldens/signatures.json"),
    "pages": ("README.md", "docs", "tests/goldens/signatures.json"),
    "peers": (
        "keras_dml/backbones",
        "keras_dml/evaluation",
        "keras_dml/export",
        "keras_dml/layers",
        "keras_dml/losses",
        "keras_dml/model",
        "keras_dml/optimizers.py",
    ),
    "replicas": (
        "keras_dml/data/_pipeline.py",
        "keras_dml/data/batches.py",
        "keras_dml/data/planned.py",
        "keras_dml/distribution",
        "keras_dml/layers",
        "keras_dml/losses",
        "keras_dml/methods",
        "keras_dml/model",
        "keras_dml/optimizers.py",
        "keras_dml/resuming",
        "tests/distribution",
    ),
    # Commands reach all of the package.
    "runs": (
        "keras_dml",
        "recipes",
        "tests/cli",
        "tests/resuming",
        "tests/runs",
    ),
    "server": (
        "keras_dml/cli/commands/serve.py",
        "keras_dml/search",
        "keras_dml/serve",
        "tests/serve",
    ),
    "tutorial": (
        "docs/start/photographs.md",
        "keras_dml/cli/commands/index.py",
        "keras_dml/data/splits.py",
        "keras_dml/runs/outcome.py",
        "keras_dml/search/identification.py",
        "recipes/caltech101/_base.yaml",
        "recipes/caltech101/baseline.yaml",
        "recipes/photographs.yaml",
    ),
    "tracking": ("keras_dml/runs/tracking.py",),
}

# Extras that a check is about. What all tests need, the rest of the test
# extra, is tried by every run of `.ci/run`.
EXTRAS = {
    "engines": ("engines",),
    "notebooks": ("notebooks",),
    "peers": ("peers",),
    "server": ("serve",),
    "tracking": ("tracking",),
}


def requirements(extra: str, extras: dict[str, list[str]]) -> Iterator[str]:
    """Packages of an extra, and of the extras that it asks for."""
    for requirement in extras[extra]:
        inner = re.fullmatch(r"keras-dml\[(.+)\]", requirement)
        if inner is None:
            yield requirement
        else:
            for name in inner[1].split(","):
                yield from requirements(name, extras)


def files_of(check: str) -> Iterator[Path]:
    for script in (check, "marked"):
        yield ROOT / ".ci" / script
    for room in ROOMS[check]:
        path = ROOT / room
        if not path.exists():
            raise SystemExit(f"{__file__}: {check} looks at {room}: no such")
        yield from path.rglob("*.*") if path.is_dir() else [path]
    for path in (ROOT / "tests").rglob("test_*.py"):
        if has_mark(path, f"pytest.mark.{check}"):
            yield path


def has_mark(path: Path, mark: str) -> bool:
    """Whether tests of a file have a mark: a text may name it, too."""
    text = path.read_text(encoding="utf-8")
    return mark in text and any(
        isinstance(x, ast.Attribute) and ast.unparse(x) == mark
        for x in ast.walk(ast.parse(text))
    )


def digest(check: str) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    total = hashlib.sha256()
    for extra in EXTRAS.get(check, ()):
        total.update("\n".join(sorted(requirements(extra, extras))).encode())
    for path in sorted(set(files_of(check))):
        if "__pycache__" not in path.parts and path.is_file():
            total.update(path.relative_to(ROOT).as_posix().encode())
            total.update(path.read_bytes())
    return total.hexdigest()


def main(check: str, passed: bool) -> None:
    known = json.loads(PASSED.read_text()) if PASSED.exists() else {}
    current = digest(check)
    if passed:
        known[check] = current
        PASSED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    else:
        print("passed" if known.get(check) == current else "due")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] == ["passed"])
