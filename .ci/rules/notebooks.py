"""Notebooks are kept as they ran, small, with texts for their pictures."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rules.tree import Finding, Tree

ABSOLUTE = re.compile(
    r"(?<![\w.:/])(/(home|root|tmp|work|Users|opt|usr)/|C:\\)"
)


def check(tree: Tree) -> Iterator[Finding]:
    for path in tree.notebooks:
        for text in faults(tree, path):
            yield Finding(path, 1, text)


def faults(tree: Tree, path: Path) -> Iterator[str]:
    code = tree.cells(path, "code")
    outputs = [output for cell in code for output in cell["outputs"]]
    if path.stat().st_size >= 500_000:
        yield "it has over 500 kB"
    ran = [cell["execution_count"] for cell in code]
    if ran != list(range(1, len(code) + 1)):
        yield "it did not run from the first cell to the last"
    if not any(x["output_type"] == "stream" for x in outputs):
        yield "it prints nothing"
    if any(x["output_type"] == "error" for x in outputs):
        yield "a cell failed"
    if any(x.get("name") == "stderr" for x in outputs):
        yield "a cell wrote to standard error"
    if not any(pictures([x]) for x in outputs):
        yield "it has neither a figure nor a picture"
    for cell in code:
        alt = cell["metadata"].get("alt", "")
        if pictures(cell["outputs"]) and len(alt) <= 30:
            cause = "".join(cell["source"]).splitlines()[-1]
            yield f'the picture of {cause!r} has no text, "alt" in metadata'
    for text in texts(code, tree.cells(path, "markdown")):
        if found := ABSOLUTE.search(text):
            yield f"it names a folder of who ran it: {found[0]}"
    printed = ["".join(x.get("text", "")) for x in outputs]
    if "server" in path.stem and not any("http://" in x for x in printed):
        yield "the server does not say where it listens"


def pictures(outputs: list[dict[str, Any]]) -> bool:
    return any(
        kind.startswith("image/")
        for output in outputs
        for kind in output.get("data", ())
    )


def texts(
    code: list[dict[str, Any]], prose: list[dict[str, Any]]
) -> Iterator[str]:
    """Sources, and the outputs that are texts."""
    for cell in [*code, *prose]:
        yield "".join(cell["source"])
    for cell in code:
        for output in cell["outputs"]:
            shown = {"text": output.get("text", ""), **output.get("data", {})}
            for kind, text in shown.items():
                if not kind.startswith("image/"):
                    yield "".join(text)
