"""A run with hostile names."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch

import pytest

from keras_dml import recipes, runs
from keras_dml.reports import report
from keras_dml.utils.files import file_lock
from tests.runs.small_run import QUICK, write_recipe

HOSTILE = "</script><img src=x onerror=document.title='broken'>"
"""A name that breaks a page unless it is escaped."""


class Page(HTMLParser):
    """Parses a page: elements with attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.elements.append((tag, {k: v or "" for k, v in attrs}))

    def handle_data(self, data) -> None:
        self.text += data


def any_name() -> AbstractContextManager[object]:
    """Allows hostile recipe names; pages must not rely on that check."""
    return patch("keras_dml.recipes.schema._NAME", "(?s:.*)")


@pytest.fixture(scope="session")
def hostile_run(shared_folder) -> Path:
    """A run whose classes, files and name try to break a page."""
    folder = shared_folder / "hostile"
    with file_lock(shared_folder / "hostile.lock"):
        if not folder.exists():
            train_hostile(folder)
    return folder / "run"


def train_hostile(folder: Path) -> None:
    path = write_recipe(folder)
    for number, images in enumerate(sorted((folder / "images").iterdir())):
        # A file name may hold anything but a slash.
        name = HOSTILE.replace("/", "\\") + f" & {number}"
        images.rename(images.with_name(name))
    with any_name():
        recipe = recipes.load(path, (*QUICK, f"name={json.dumps(HOSTILE)}"))
        runs.train(recipe, folder / "run", verbose=0)


@pytest.fixture(scope="session")
def page_of() -> Callable[[Path], Path]:
    """The page of a run, which the first process that asks for it writes."""

    def write_once(run: Path) -> Path:
        page = run / "page.html"
        with file_lock(run / "page.lock"), any_name():
            return page if page.exists() else report(run, page)

    return write_once
