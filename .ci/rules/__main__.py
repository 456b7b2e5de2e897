"""Checks the texts of a checkout: `python -m rules [RULE ...]`.

Prints each finding as "file:line: rule: what is wrong", and exits with 1 if
there are any. All rules run in one process, as TensorFlow is imported once.
"""

import importlib
import os
import sys
from pathlib import Path

from rules.tree import Tree

HERE = Path(__file__).parent
NO_RULES = ("__init__", "__main__", "tree")


def names() -> list[str]:
    return sorted({x.stem for x in HERE.glob("*.py")}.difference(NO_RULES))


def main(rules: list[str]) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tree = Tree(HERE.parents[1])
    count = 0
    for name in rules or names():
        check = importlib.import_module(f"rules.{name}").check
        for path, line, text in check(tree):
            where = os.path.relpath(path, tree.root)
            print(f"{where}:{line}: {name}: {text}", flush=True)
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
