"""Tests that need a package which `.ci/run` does not install are marked.

Else no step of CI would run them: `.ci/` has a script for each mark.
"""

import re
from collections.abc import Iterator

from rules.tree import Finding, Tree

MARKS = {
    "peers": (
        "jax", "keras_cv", "nncf", "openvino", "pydot",
        "pytorch_metric_learning", "sentence_transformers",
        "tensorflow_serving", "torch",
    ),
    "tracking": ("mlflow", "wandb"),
    "engines": ("lancedb", "ray"),
}  # fmt: skip


def check(tree: Tree) -> Iterator[Finding]:
    for mark, packages in MARKS.items():
        named = "|".join(packages)
        backend = r"|backend\)" if mark == "peers" else ""
        needs = re.compile(
            rf'(importorskip|find_spec)\(("({named})[".]{backend})'
        )
        for path in tree.tests:
            if not path.name.startswith("test_"):
                continue
            text = tree.text(path)
            needed = len(needs.findall(text))
            if needed > text.count(f"pytest.mark.{mark}"):
                first = needs.search(text)
                line = text.count("\n", 0, first.start()) + 1 if first else 1
                wanted = f"{needed} tests need pytest.mark.{mark}"
                yield Finding(path, line, wanted)
