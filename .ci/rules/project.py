"""What pyproject.toml says agrees with the pages that repeat it."""

import re
import tomllib
from collections.abc import Iterator

import yaml

from rules.tree import Finding, Tree

FIRST_COMMAND = "&& keras-dml train quickstart\n"


def check(tree: Tree) -> Iterator[Finding]:
    path = tree.root / "pyproject.toml"
    config = tomllib.loads(tree.text(path))
    project = config["project"]
    hook = config["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    yield from versions(tree, project["version"])
    yield from pythons(tree, project)
    yield from readme(tree, hook["substitutions"])
    yield from dependencies(tree, project["dependencies"])
    for form in sorted((tree.root / ".github").rglob("*.yml")):
        try:
            yaml.safe_load(tree.text(form))
        except yaml.YAMLError as error:
            yield Finding(form, 1, f"it is not YAML: {error}")


def versions(tree: Tree, version: str) -> Iterator[Finding]:
    citation = tree.root / ".github" / "CITATION.cff"
    if yaml.safe_load(tree.text(citation))["version"] != version:
        yield Finding(citation, 1, f"the version is {version}")
    changes = tree.docs / "project" / "changelog.md"
    if f" {version}" not in tree.text(changes):
        yield Finding(changes, 1, f"it does not name the version {version}")


def pythons(tree: Tree, project: dict) -> Iterator[Finding]:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    path = tree.root / "pyproject.toml"
    if [project["requires-python"]] != [f">={x}" for x in named[:1]]:
        yield Finding(path, 1, "requires-python is not the first classifier")
    readme = tree.root / "README.md"
    for python in named:
        if python not in tree.text(readme):
            yield Finding(readme, 1, f"it does not name Python {python}")


def readme(tree: Tree, substitutions: list[dict]) -> Iterator[Finding]:
    """A package index shows it without what is only in the repository."""
    path = tree.root / "README.md"
    before = text = tree.text(path)
    for each in substitutions:
        text = re.sub(each["pattern"], each["replacement"], text)
    for dead in re.findall(r"!\[.*|\]\((?!https?:).*", text):
        yield Finding(path, 1, f"a package index would show {dead}")
    for heading in re.findall(r"^#.*", before, re.M):
        if heading not in text:
            yield Finding(path, 1, f"a package index would not show {heading}")
    blocks = [block.code for block in tree.blocks(path, "sh")]
    if not blocks or not blocks[0].endswith(FIRST_COMMAND):
        yield Finding(path, 1, f"the first block ends with {FIRST_COMMAND!r}")


def dependencies(tree: Tree, required: list[str]) -> Iterator[Finding]:
    page = tree.docs / "project" / "contributing.md"
    _, _, table = tree.text(page).partition("\n| core dependency")
    named = {
        name.strip()
        for row in table.split("\n\n")[0].splitlines()[2:]
        for name in row.split("|")[1].split(",")
    }
    for name in named ^ {re.split("[<>=]", x)[0] for x in required}:
        text = f"{name} is only in one of pyproject.toml and the table"
        yield Finding(page, 1, text)
