"""Descriptions of pages, and the menu of the site as llms.txt."""

import re
import runpy
from pathlib import Path

import pytest
import yaml

DOCS = Path(__file__).parents[1] / "docs"
llms = runpy.run_path(str(DOCS / "site/llms.py"))


@pytest.fixture(scope="module")
def text() -> str:
    settings = (DOCS / "site/mkdocs.yml").read_text()
    head = {"title": "keras_dml", "summary": "Metric learning"}

    def text_of(path: str) -> str:
        return "" if path.endswith("ipynb") else (DOCS / path).read_text()

    menu = yaml.safe_load(settings)["nav"]
    return llms["llms"](menu, head, text_of, "https://example.org/{}".format)


def test_description_is_the_first_sentence_without_markup() -> None:
    page = """---
search: {boost: 2}
---
# Title

```python
model = baseline()
```

Xu et al.: *A Paper*, [2020](https://example.org).

![Picture](x.png)

A `Search` finds [the *nearest* images](a.md) of a large
gallery: it is exact. More.
"""
    expected = "A Search finds the nearest images of a large gallery."
    assert llms["description"](page) == expected


def test_short_sentence_is_joined_with_the_next() -> None:
    page = "# Title\n\nUse a recipe. It holds the seed. More."
    assert llms["description"](page) == "Use a recipe. It holds the seed."


def test_llms_has_title_summary_and_sections_of_links(text: str) -> None:
    title, _, summary, *lines = text.splitlines()
    assert (title, summary) == ("# keras_dml", "> Metric learning")
    sections = text.split("\n## ")[1:]
    assert [x.splitlines()[0] for x in sections][:2] == ["Start", "Guides"]
    link = re.compile(r"- \[[^\]]+\]\(https://example.org/[\w/.]+\)(: .+)?")
    for section in sections:
        _, _, *links = section.rstrip().splitlines()
        assert links
        assert all(link.fullmatch(line) for line in links)
    search = "- [Search](https://example.org/guides/search.md): An Index holds"
    assert any(line.startswith(search) for line in lines)


def test_every_page_has_a_description(text: str) -> None:
    pages = re.findall(r"^- .*?\.md\)(.*)$", text, re.M)
    assert len(pages) > 80
    assert [x for x in pages if not 30 < len(x) < 300] == []
