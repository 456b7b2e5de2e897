"""Writes docs/commands from the help: `python docs/site/commands.py`.

`.ci/lint` fails where a page differs.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from keras_dml.cli import main as program

DOCS = Path(__file__).parents[1]

GUIDES = {
    "benchmark": "[Benchmarks](../guides/benchmarking.md)",
    "data": "[Your own data](../guides/your_data.md)",
    "embed": "[Large galleries](../guides/large_galleries.md)",
    "evaluate": "[Evaluation](../guides/evaluation.md)",
    "export": "[Serving](../guides/serving.md)",
    "figures": "[Figures](../guides/report.md#figures)",
    "index": "[Search](../guides/search.md)",
    "recipes": "[Recipes](../guides/recipes.md)",
    "report": "[Report](../guides/report.md)",
    "search": "[Search](../guides/search.md)",
    "serve": "[Serving](../guides/serving.md)",
    "train": "[Recipes](../guides/recipes.md)",
    "tune": "[Tuning](../guides/benchmarking.md#tune)",
}

NOT_RUN = ("benchmark", "serve", "tune")
"""Commands whose examples need more than the tests have, or never end."""


def page(name: str, command: click.Command) -> str:
    """The page of a command, in Markdown."""
    path = f"keras-dml {name}"
    parts = [f"# {path}", *described(path, command, "##")]
    guide = GUIDES[name]
    return "\n\n".join([*parts, f"Guide: {guide}."]) + "\n"


def described(path: str, command: click.Command, level: str) -> Iterator[str]:
    """Usage, help, options and example, of parts of a group each."""
    context = click.Context(command, info_name=path)
    yield from paragraphs(command.help or "")
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            yield f"{level} {name}"
            yield from described(f"{path} {name}", part, level + "#")
    else:
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"```text\n{path} {usage}\n```"
        options = [x for x in command.params if isinstance(x, click.Option)]
        yield "\n".join(item(x, context) for x in options)
    if command.epilog:
        yield example(path, command.epilog)


def paragraphs(text: str) -> list[str]:
    """Paragraphs of a help, each on one line."""
    text = re.sub(r"(?<!\S)(--[a-z-]+)", r"`\1`", text)
    return [" ".join(x.split()) for x in text.split("\n\n")]


def item(option: click.Option, context: click.Context) -> str:
    """A list item of an option: what it takes, does, and is by default."""
    (text,) = paragraphs(option.help or "")
    default = option.to_info_dict()["default"]
    known = option.is_flag or default in (None, ()) or "[default: " in text
    text = re.sub(r"\s*\[default: (.*?)\]$", r" Default: \1.", text)
    if not known:
        text += f" Default: `{default}`."
    takes = "" if option.is_flag else f" {option.make_metavar(context)}"
    takes = takes.removesuffix(" RANGE")
    return f"- `{', '.join(option.opts)}{takes}`: {text}"


def example(path: str, epilog: str) -> str:
    lines = re.findall(r"^ +(keras-dml .*)", epilog, re.M)
    mark = "<!--not-run-->\n" if path.split()[1] in NOT_RUN else ""
    return f"{mark}```sh\n" + "\n".join(lines) + "\n```"


def overview(text: str, commands: dict[str, click.Command]) -> str:
    """The first page, with its list of commands made again."""
    lines = [
        f"- [`{name}`]({name}.md): {paragraphs(command.help or '')[0]}"
        for name, command in commands.items()
    ]
    new = "\n".join(lines)
    return re.sub(
        r"(?:^- \[`\w+`\].*\n)+", lambda _: f"{new}\n", text, flags=re.M
    )


def written() -> dict[Path, str]:
    """The pages as they should be."""
    context = click.Context(program)
    commands: dict[str, click.Command] = {}
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        assert command is not None  # noqa: S101
        commands[name] = command
    folder = DOCS / "commands"
    first = folder / "README.md"
    pages = {folder / f"{x}.md": page(x, y) for x, y in commands.items()}
    return {first: overview(first.read_text("utf-8"), commands), **pages}


def main() -> None:
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
