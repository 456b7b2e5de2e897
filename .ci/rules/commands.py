"""Printed commands exist."""

import functools
import re
import shlex
from collections.abc import Iterator
from unittest import mock

import click

from keras_dml import recipes
from keras_dml.cli import main
from keras_dml.recipes import included
from keras_dml.runs.benchmark import read_plan
from rules.tree import Finding, Tree


def check(tree: Tree) -> Iterator[Finding]:
    # The folder of recipes does not change here.
    paths = functools.cache(included.paths)
    with mock.patch.object(included, "paths", paths):
        yield from of_lines(tree)


def of_lines(tree: Tree) -> Iterator[Finding]:
    script = tree.docs / "results" / "commands.sh"
    for line in tree.text(script).replace("\\\n", "").splitlines():
        if line[:1] not in ("", "#") and (fault := fault_of(tree, line)):
            yield Finding(script, 1, f"{fault}: {line}")
    for page in tree.pages:
        for block in tree.blocks(page, "sh"):
            lines = block.code.replace("\\\n", "").splitlines()
            if any(line.startswith("$ ") for line in lines):
                text = "a command to copy begins with a prompt"
                yield Finding(page, block.line, text)
        # A test runs the other blocks.
        for block in tree.blocks(page, "sh", mark="not-run"):
            for line in block.code.replace("\\\n", "").splitlines():
                if line and (fault := fault_of(tree, line)):
                    yield Finding(page, block.line, f"{fault}: {line}")


def fault_of(tree: Tree, line: str) -> str | None:
    """Why a printed command would fail."""
    program, *arguments = shlex.split(
        re.split(r" [|>] ", line)[0], comments=True
    ) or [""]
    if program == "python" and not (tree.root / arguments[0]).is_file():
        return f"there is no {arguments[0]}"
    if program == "keras-dml":
        # Files need not be there.
        convert = mock.patch.object(
            click.Path, "convert", lambda self, value, *_: value
        )
        try:
            with convert:
                try_command(arguments)
        except (click.ClickException, ValueError, OSError) as error:
            return str(error)
    return None


def try_command(arguments: list[str]) -> None:
    """Raises where a command, option, recipe or setting does not exist."""
    command: click.Command | None = main
    context = None
    while isinstance(command, click.Group):
        context = click.Context(
            command, parent=context, **command.context_settings
        )
        _, command, arguments = command.resolve_command(context, arguments)
    assert command is not None  # noqa: S101
    given = command.make_context(command.name, arguments, context).params
    if command.name in ("train", "tune"):
        recipes.load(given["recipe"], given["settings"])
    if command.name == "benchmark":
        known = recipes.names()
        names = [x for x in given["recipes"] if x.split("::")[0] in known]
        read_plan(names, given["seeds"], "runs", given["settings"])
