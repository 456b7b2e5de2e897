"""Writes tables that repeat measurements: `python docs/site/tables.py`.

The pages of methods and the guide to choosing one repeat what docs/results and
the costs in docs/methods/README.md say, and the first page of the site the
result of the README. `.ci/lint` fails where they differ.
"""

import re
from collections.abc import Iterator
from pathlib import Path

Cells = list[str]

LEADERBOARDS = {
    "MAP@R, glyphs": "leaderboard_glyphs",
    "MAP@R, emoji (frozen network)": "leaderboard",
    "MAP@R, emoji (frozen lower layer)": "leaderboard_emoji_lower",
    "MAP@R, emoji (upper layers)": "leaderboard_emoji_upper",
    "MAP@R, emoji (whole network)": "leaderboard_emoji_full",
}
"""Heads of rows in the table of a method, and the pages they repeat."""

COSTS = {"CPU time of a training step": 4, "memory of a training step": 6}
"""Heads of rows, and the columns of docs/methods/README.md they repeat."""

GUIDE = ("## glyphs: tuned", "### Frozen")
"""Headings of the results above the tables that the guide repeats."""


def cells(line: str) -> Cells:
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def row(text: str, head: str) -> Cells:
    """The first row of a table that begins with `head`; empty without one."""
    found = re.search(rf"^\| {re.escape(head)} \|.*", text, re.M)
    return cells(found[0]) if found else []


def numbers(cell: str) -> list[float]:
    found = re.findall(r"[+−-]?\d+\.\d+", cell)
    return [float(x.replace("−", "-")) for x in found]


def rounded(mean: str, half: str) -> str:
    return f"{float(mean):.3f} ± {float(half):.3f}"


def signed(number: float) -> str:
    return f"{number:+.3f}".replace("-", "−")


class Tables:
    """The tables of a folder docs/."""

    def __init__(self, docs: Path) -> None:
        self.docs = docs

    def read(self, name: str) -> str:
        return (self.docs / name).read_text(encoding="utf-8")

    def measured(self, method: str, head: str) -> str:
        """MAP@R in a leaderboard, or in the first table of Caltech-101."""
        name = method.replace("_", "-")
        if head in LEADERBOARDS:
            pattern = rf"^\| (?:\d+|–) \| \[{name}\]\S+ \| (\S+) ± (\S+) \|"
            text = self.read(f"results/{LEADERBOARDS[head]}.md")
        else:
            pattern = (
                rf"^\| caltech101-{name} \| \d of \d \| [^|]+ "
                r"\| (\S+) ± (\S+) \|"
            )
            text = self.read("results/README.md")
        found = re.search(pattern, text, re.M)
        return rounded(*found.groups()) if found else "not measured"

    def of_method(self, name: str) -> str:
        """The page of a method with its table "at a glance" made again."""
        costs = self.read("methods/README.md")

        def made(found: re.Match[str]) -> str:
            head = cells(found[0])[0]
            if head in COSTS:
                return f"| {head} | {row(costs, name)[COSTS[head]]} | 1.00 |"
            if not head.startswith("MAP@R, "):
                return found[0]
            methods = dict.fromkeys([name, "baseline"])
            values = [self.measured(method, head) for method in methods]
            return f"| {' | '.join([head, *values])} |"

        top, middle, rest = self.read(f"methods/{name}.md").partition("\n\n**")
        return re.sub(r"^\| .* \|$", made, top, flags=re.M) + middle + rest

    def of_guide(self) -> str:
        """The guide to choosing a method, with its table made again."""
        page = self.read("guides/choosing.md")
        results, costs = (
            self.read("results/README.md"),
            self.read("methods/README.md"),
        )
        tables = [
            re.findall(
                r"^\| recipe \|.*?\n\n",
                results[results.index(f"\n{heading}") :],
                re.M | re.S,
            )[0]
            for heading in GUIDE
        ]

        def made(found: re.Match[str]) -> str:
            method = found[1].lower().replace(" ", "-")
            made = [found[1]]
            for table in tables:
                made += self.compared(row(table, method))
            made.append(row(costs, method.replace("-", "_"))[3])
            return f"| {' | '.join(made)} |"

        head, _, after = page.partition("| cost of a step |\n")
        ruler, _, after = after.partition("\n")
        body, gap, rest = after.partition("\n\n")
        body = re.sub(r"^\| (.*?) \|.*", made, body, flags=re.M)
        return f"{head}| cost of a step |\n{ruler}\n{body}{gap}{rest}"

    def compared(self, measured: Cells) -> Iterator[str]:
        """MAP@R and the difference, in bold where it is not by chance."""
        if not measured:
            yield from ("–", "–")
            return
        mean, half = numbers(measured[1])
        yield rounded(str(mean), str(half))
        if not numbers(measured[3]):
            yield "–"
            return
        (difference,), (low, high) = map(numbers, measured[3:5])
        bold = "**" if low * high > 0 else ""
        interval = f"[{signed(low)}, {signed(high)}]"
        yield f"{bold}{signed(difference)}{bold} {interval}"

    def of_index(self) -> str:
        """The first page of the site with the result of the README."""
        page = self.read("index.md")
        readme = (self.docs.parent / "README.md").read_text(encoding="utf-8")
        for pattern in (
            r"^\| 11,713.*?\n\n",
            r"^Training takes .*?GPU\.\n",
        ):
            (result,) = re.findall(pattern, readme, re.M | re.S)
            page, count = re.subn(
                pattern, lambda _, new=result: new, page, flags=re.M | re.S
            )
            assert count == 1, pattern  # noqa: S101
        return page

    def written(self) -> dict[Path, str]:
        """The pages as they should be."""
        pages = {
            self.docs / "index.md": self.of_index(),
            self.docs / "guides" / "choosing.md": self.of_guide(),
        }
        for path in sorted((self.docs / "methods").glob("*.md")):
            if "\n| at a glance |" in path.read_text(encoding="utf-8"):
                pages[path] = self.of_method(path.stem)
        return pages


def main() -> None:
    for path, page in Tables(Path(__file__).parents[1]).written().items():
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
