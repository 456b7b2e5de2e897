"""Files of the page, which come with the package."""

from importlib import resources

from keras_dml.reports.html import asset

HOME = "index.html"

_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def read_assets() -> dict[str, tuple[bytes, str]]:
    """Content and MIME type of each file by its name.

    "base.css" is the style of reports, which the page adds to.
    """
    folder = resources.files("keras_dml.serve.page") / "static"
    found = {
        file.name: (file.read_bytes(), _KINDS[file.name.rpartition(".")[2]])
        for file in folder.iterdir()
    }
    found["base.css"] = asset("page.css").encode(), _KINDS["css"]
    return found
