"""`.ci/lint` finds a fault of each of its rules, planted in a folder."""

import importlib
import json
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PAGE = """# How it ends

It is received by `dml.losses.Nothing`, see [that](nothing.md).

<!--not-run-->
```sh
$ keras-dml
keras-dml train nowhere
keras-dml trane
python nothing.py
```

```py
dml.Nothing()
```

```basic
```

From 0.1 to 0.2 and
from 0.3 to 0.4.
"""

MODULE = """found = 1
def f():
    if f:
        return "half a sentence, "
        "and the other half"
"""

NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": 2,
            "metadata": {},
            "source": ["open('/home/me')"],
            "outputs": [
                {"output_type": "error"},
                {"output_type": "display_data", "data": {"image/png": ""}},
            ],
        }
    ]
}

ADDED = {
    "docs/planted.md": f"{PAGE}\n| {'x' * 91} |\n",
    "docs/notebooks/planted.ipynb": json.dumps(NOTEBOOK),
    "docs/images/planted.png": "x" * 200_000,
    "keras_dml/planted.py": MODULE,
    "tests/test_planted.py": 'torch = pytest.importorskip("torch")',
}

CHANGED = {
    "pyproject.toml": ('version = "0.1.0"', 'version = "9.9.9"'),
    "docs/methods/abe.md": ("| MAP@R, glyphs | 0.7", "| MAP@R, glyphs | 0.9"),
    "docs/images/results_glyphs.svg": (">0.747<", ">0.947<"),
    "docs/results/glyphs.md": ("[0.747](", "[0.947]("),
    "docs/results/journals/glyphs.jsonl": ('"error": null', '"error": "!"'),
    "docs/results/journals/emoji.jsonl": ('"seed": 0', '"seed": 9'),
    "recipes/photographs.yaml": ("# Put", "# See docs/planted.md\n# Put"),
    "docs/reference/backbones.md": ('| `"small_convnet"` |', '| `"planted"` |'),
    "docs/commands/serve.md": ("- `--", "- `--planted-"),
    "docs/papers/papers.yaml": ("losses.", "losses.Planted"),
    "docs/migration/tf_similarity.md": ("| `losses.C", "| `losses.Planted"),
}

EXPECTED = {
    "blocks": ["the language is 'basic'"],
    "commands": [
        "The recipe nowhere cannot be read", "no command 'trane'",
        "there is no nothing.py", "begins with a prompt",
    ],
    "docstrings": ["does not name Planted"],
    "english": ["How it ends", "is it half of the one before?"],
    "fidelity": ["there is no losses.Planted"],
    "generated": [
        "abe.md:", "glyphs.md:3: run", "results_glyphs.svg:",
        "papers/README.md:", "commands/serve.md:",
    ],
    "images": ["it has over 200 kB"],
    "journals": ["failed", "has the seeds [9, 1, 2, 3, 4]"],
    "links": [
        "there is no nothing.md", "planted.md is 0 times in the menu",
        "photographs.yaml:2: a wheel has no docs/planted.md",
    ],
    "marks": ["1 tests need pytest.mark.peers"],
    "names": ["there is no dml.losses.Nothing", "there is no dml.Nothing"],
    "notebooks": ["did not run", "a cell failed", "no text", "names a folder"],
    "readable": ["a cell has 91 characters", "a paragraph has 4 decimals"],
    "project": ["the version is 9.9.9"],
    "wording": ["found has no noun"],
    "tables": ['there is no row | `"small_convnet"` |'],
}  # fmt: skip
"""Parts of the expected findings, by rule."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    pictures = shutil.ignore_patterns("*.png", "*.ipynb")
    shutil.copytree(ROOT / "docs", root / "docs", ignore=pictures)
    for name in (".github", "recipes"):
        shutil.copytree(ROOT / name, root / name)
    for name, text in ADDED.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, (old, new) in CHANGED.items():
        text = (root / name).read_text()
        assert old in text, name
        (root / name).write_text(text.replace(old, new, 1))
    return root


@pytest.mark.slow
def test_each_rule_finds_its_fault(planted, monkeypatch) -> None:
    monkeypatch.syspath_prepend(ROOT / ".ci")
    names = importlib.import_module("rules.__main__").names()
    assert set(names) == set(EXPECTED)
    tree = importlib.import_module("rules.tree").Tree(planted)
    for name in names:
        check = importlib.import_module(f"rules.{name}").check
        findings = [
            f"{x.path.relative_to(planted)}:{x.line}: {x.text}"
            for x in check(tree)
        ]
        for text in EXPECTED[name]:
            said = [x for x in findings if text in x]
            assert said, f"{name} does not find {text!r}, but {findings}"
