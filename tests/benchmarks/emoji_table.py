"""The table of emoji that recipes/emoji read, of a folder of pictures.

    python tests/benchmarks/emoji_table.py FOLDER emoji.csv [--classes 381]

FOLDER has a folder of pictures for every class, and `classes.csv` with the
columns class, subgroup and split. With --classes, the training classes are
those of random subgroups, until there are as many: with 167, 381 and 619, the
subsets of docs/results/claims.md.
"""

import argparse
import csv
import random
from collections import Counter
from pathlib import Path

COLUMNS = ("path", "label", "split", "subgroup")

Row = dict[str, str]


def classes_of(folder: Path, least: int | None) -> list[Row]:
    """The rows of `classes.csv`; of training classes at least so many."""
    with (folder / "classes.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    sizes = Counter(x["subgroup"] for x in rows if x["split"] == "train")
    kept = set(sizes) if least is None else some(sizes, least)
    return [x for x in rows if x["split"] != "train" or x["subgroup"] in kept]


def some(sizes: Counter[str], least: int) -> set[str]:
    """Random subgroups that have at least so many classes together."""
    order = sorted(sizes)
    random.Random(0).shuffle(order)  # noqa: S311
    kept: set[str] = set()
    for subgroup in order:
        if sum(sizes[x] for x in kept) >= least:
            break
        kept.add(subgroup)
    return kept


def pictures(folder: Path, row: Row) -> list[tuple[str, ...]]:
    """A row of the table for every picture of a class."""
    files = sorted((folder / row["class"]).glob("*.png"))
    return [
        (str(file.resolve()), row["class"], row["split"], row["subgroup"])
        for file in files
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--classes", type=int)
    arguments = parser.parse_args()
    rows = [
        picture
        for row in classes_of(arguments.folder, arguments.classes)
        for picture in pictures(arguments.folder, row)
    ]
    with arguments.output.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
