"""The clients of the docs move to TensorFlow Serving by another address.

Each page's own code runs against the embedded server and against what answers
as TensorFlow Serving does. That of the tutorial sends rows, that of the page
on serving columns.
"""

import base64
import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keras_dml.export import export_model
from keras_dml.search import Index
from keras_dml.serve.loading import load
from keras_dml.serve.sources import find_source
from tests.conftest import blobs
from tests.export import rest
from tests.export.serving import file_of
from tests.serve.conftest import make_model
from tests.serve.page.live import serving

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"rows": "tutorials/serving.md", "columns": "serving.md"}
NAME = "glyphs"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of exports."""
    folder = tmp_path_factory.mktemp("saved_models")
    model, images = make_model(), blobs()
    index = Index.build(model, images)
    index.calibrate(index.embeddings, images.labels)
    export_model(model, folder / NAME, gallery=index, k=3)
    return folder


@pytest.fixture(scope="module")
def addresses(models: Path) -> Iterator[dict[str, str]]:
    """Where the two servers are, host and port."""
    current = load(find_source(str(models / NAME)))
    with serving(current) as embedded, rest.serving(models) as other:
        own = embedded.url.removeprefix("http://").rstrip("/")
        yield {"embedded": own, "TensorFlow Serving": other}


def client(page: str, address: str) -> tuple[dict[str, Any], str]:
    """What the code of a page's client defines, and what it prints."""
    text = (DOCS / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    first = next(i for i, x in enumerate(blocks) if "\nURL = " in x)
    code = "".join(x for x in blocks[first:] if "URL" in x)
    code = code.replace("localhost:8501", address)
    code = re.sub(r"models/\w+:", f"models/{NAME}:", code)
    file = base64.b64encode(file_of(blobs().read(0))).decode()
    names: dict[str, Any] = {"json": json, "b64": file}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, names)  # noqa: S102
    return names, printed.getvalue()


@pytest.fixture(scope="module")
def ran(addresses, tmp_path_factory) -> Iterator[dict[tuple[str, str], Any]]:
    """What each page's client defines and prints, by page and server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("queries"))
        for name, row in ("known", 0), ("unknown", 9):
            Path(f"{name}.png").write_bytes(file_of(blobs().read(row)))
        Path("broken.png").write_bytes(b"no picture")
        yield {
            (form, server): client(page, address)
            for form, page in PAGES.items()
            for server, address in addresses.items()
        }


@pytest.mark.parametrize("form", PAGES)
def test_both_servers_answer_alike(addresses, ran, form) -> None:
    printed = {ran[form, server][1] for server in addresses}
    assert len(printed) == 1
    assert "ok" in printed.pop()


@pytest.mark.parametrize("server", ["embedded", "TensorFlow Serving"])
def test_rows_and_columns_find_the_same(ran, server) -> None:
    rows, printed = ran["rows", server]
    columns, _ = ran["columns", server]
    assert re.match(r"known.png ok .* \[1.0, ", printed)
    files = [
        {"b64": base64.b64encode(Path(x).read_bytes()).decode()}
        for x in ("known.png", "broken.png")
    ]
    found = columns["ask"]("lookup_k", images=files, k=[5, 5])
    for number, name in enumerate(("known.png", "broken.png")):
        status, labels = rows["nearest"](name, 5)
        assert found["status"][number] == status
        assert found["labels"][number] == labels
