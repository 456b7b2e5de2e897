"""Writes the tables of leaderboards: `python docs/site/leaderboards.py`.

docs/results/journals has the journals of benchmarks (`runs.jsonl`), with a line
for each run. From them and the command on the page, the table is made as
`keras-dml benchmark` makes it, with links for names. `.ci/lint` makes it again.
"""

import re
import shlex
import shutil
import tempfile
from pathlib import Path

import click

from keras_dml.cli import main as keras_dml
from keras_dml.cli.commands.benchmark import benchmark, metrics_setting
from keras_dml.runs.benchmark import read_plan
from keras_dml.runs.benchmark.journal import JOURNAL, Journal
from keras_dml.runs.benchmark.plan import Plan
from keras_dml.runs.benchmark.report import REPORT, write_report

RESULTS = Path(__file__).parents[1] / "results"
PAGES = sorted(RESULTS.glob("leaderboard*.md"))
JOURNALS = RESULTS / "journals"

TABLE = r"^\|  \| recipe .*\n(?:\|.*\n)+"
"""A table of ranked recipes."""


def plan_of(command: str, output: Path) -> Plan:
    """The plan of a printed command, with another folder."""
    words = shlex.split(command.replace("\\\n", " "))
    options = words[words.index("benchmark") + 1 :]
    program = click.Context(keras_dml, **keras_dml.context_settings)
    found = benchmark.make_context("benchmark", options, program).params
    settings = [*found["settings"], *metrics_setting(found["metrics"])]
    return read_plan(
        found["recipes"], found["seeds"], output, settings, found["baseline"]
    )


def made(journal: Path, command: str) -> str:
    """The table that a benchmark with this journal writes."""
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_of(command, Path(folder))
        shutil.copy(journal, plan.output / JOURNAL)
        write_report(plan, Journal(plan.output).entries(), command)
        page = (plan.output / REPORT).read_text()
    (table,) = re.findall(TABLE, page, re.M)
    return str(table)


def linked(table: str, before: str, prefix: str) -> str:
    """With the links of the table that it replaces, and typographic signs."""
    links = dict(re.findall(r"\| \[(\S+)\]\((\S+)\) \|", before))
    table = table.replace(" map@r ", " MAP@R ")
    table = re.sub(r"([ \[])-(?=\d)", r"\1−", table)
    table = re.sub(rf"{prefix}(?=[\w-]+ \|)", "", table)
    for name, link in links.items():
        table = re.sub(
            rf"^(\| \d+ \| ){name} ", rf"\1[{name}]({link}) ", table, flags=re.M
        )
    return table


def written(page: str) -> str:
    """A page with its table made again."""
    (data,) = re.findall(r"\]\(\.\./images/leaderboard_(\w+)\.svg\)", page)
    (command,) = (
        block
        for block in re.findall(r"^\$ ((?:.*\\\n)*.*\n)", page, re.M)
        if f"--output runs/{data}\n" in block.replace(" \\", "\n")
    )
    (before,) = re.findall(TABLE, page, re.M)
    table = made(JOURNALS / f"{data}.jsonl", command)
    prefix = data.replace("_", "-") + "-"
    return page.replace(before, linked(table, before, prefix))


def main() -> None:
    for path in PAGES:
        path.write_text(written(path.read_text()))


if __name__ == "__main__":
    main()
