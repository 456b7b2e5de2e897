"""Journals of the published benchmarks have five seeds and no failed run."""

import json
from collections import defaultdict
from collections.abc import Iterator

from rules.tree import Finding, Tree


def check(tree: Tree) -> Iterator[Finding]:
    for path in sorted(tree.docs.glob("results/journals/*.jsonl")):
        seeds = defaultdict(list)
        for i, line in enumerate(tree.text(path).splitlines(), start=1):
            entry = json.loads(line)
            seeds[entry["recipe"]].append(entry["seed"])
            if entry["error"] is not None:
                yield Finding(path, i, f"{entry['recipe']} failed")
        for recipe, found in seeds.items():
            if sorted(found) != [0, 1, 2, 3, 4]:
                yield Finding(path, 1, f"{recipe} has the seeds {found}")
