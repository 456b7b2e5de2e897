"""What a package index shows, and what an installed package has."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_readme_of_a_package_index_has_no_dead_links() -> None:
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / "README.md").read_text()
    assert re.search(r"\]\(docs/", text)
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    assert re.findall(r"\]\((?!https?:)", text) == []
    assert "![" not in text
    # Nothing but links has gone.
    for heading in re.findall(r"^#.*", (ROOT / "README.md").read_text(), re.M):
        assert heading in text
    assert "[results" not in text and "results" in text


def test_versions_agree() -> None:
    version = PROJECT["project"]["version"]
    cited = yaml.safe_load((ROOT / ".github" / "CITATION.cff").read_text())
    assert cited["version"] == version
    assert metadata.version("keras-dml") == version
    assert f" {version}" in (ROOT / "docs" / "changelog.md").read_text()


def test_pythons_are_those_that_are_tested() -> None:
    named = re.findall(
        r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"])
    )
    assert named and PROJECT["project"]["requires-python"] == f">={named[0]}"
    assert all(f"{x}" in (ROOT / "README.md").read_text() for x in named)


def test_the_table_of_dependencies_has_all() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text()
    table = page[page.index("| core dependency") :].split("\n\n")[0]
    first = {
        name.strip()
        for row in table.splitlines()[2:]
        for name in row.split("|")[1].split(",")
    }
    required = {
        re.split("[<>=]", x)[0] for x in PROJECT["project"]["dependencies"]
    }
    assert first == required


def test_forms_are_yaml() -> None:
    for form in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        assert yaml.safe_load(form.read_text())


def test_the_first_command_trains_by_a_name() -> None:
    printed = subprocess.run(
        [sys.executable, ".ci/readme_block.py", "1"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert printed.strip().endswith("&& keras-dml train quickstart")


def test_the_first_page_of_the_site_prints_the_result_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    page = (ROOT / "docs" / "index.md").read_text()
    [table] = re.findall(r"^\| 11,713.*?\n\n", readme, re.M | re.S)
    [time] = re.findall(r"^Training takes .*?GPU\.\n", readme, re.M | re.S)
    for text in (table, time, "\nkeras-dml train quickstart\n"):
        assert text in page
