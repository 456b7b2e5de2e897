"""The pages on the commands say what the commands say of themselves."""

from collections.abc import Iterator
from pathlib import Path

import click

from keras_dml.cli import main

PAGES = Path(__file__).parents[2] / "docs" / "commands"


CONTEXT = click.Context(main)
COMMANDS = main.list_commands(CONTEXT)


def leaves(command: click.Command) -> Iterator[click.Command]:
    if isinstance(command, click.Group):
        for part in command.commands.values():
            yield from leaves(part)
    else:
        yield command


def options(command: click.Command) -> list[click.Option]:
    return [p for p in command.params if isinstance(p, click.Option)]


def said_of(option: click.Option) -> str:
    """The help, with the default, which `--help` adds to it."""
    said = words(option.help or "")
    default = option.to_info_dict()["default"]
    if option.is_flag or default in (None, ()) or "[default: " in said:
        return said
    return f"{said} [default: {default}]"


def words(text: str) -> str:
    return " ".join(text.replace("\\|", "|").split())


def test_a_page_has_every_option_and_no_other() -> None:
    for name in COMMANDS:
        page = words((PAGES / f"{name}.md").read_text())
        wanted = []
        for command in leaves(main.get_command(CONTEXT, name)):
            assert words(command.help or "") in page, name
            for option in options(command):
                names = ", ".join(f"`{x}`" for x in option.opts)
                row = f"| {names} | {said_of(option)} |"
                assert row in page, (name, row)
                wanted.append(names)
        assert page.count("| `-") == len(wanted), name


def test_every_page_is_of_a_command_and_listed() -> None:
    pages = {path.stem for path in PAGES.glob("[!R]*.md")}
    assert pages == set(COMMANDS)
    overview = (PAGES / "README.md").read_text()
    assert all(f"({name}.md)" in overview for name in pages)
