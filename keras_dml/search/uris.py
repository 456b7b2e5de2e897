"""Addresses of indexes in databases."""

import os
import re
from pathlib import Path

from keras_dml.search.database import DatabaseGallery

FORMS = (
    "lancedb://FOLDER/TABLE, lancedb+s3://BUCKET/PATH/TABLE, "
    "milvus://HOST:PORT/COLLECTION, milvus+https://HOST:PORT/COLLECTION or "
    "milvus://FOLDER/FILE.db/COLLECTION"
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9]*)(?:\+([A-Za-z0-9]+))?://(.*)")


def is_database(uri: str | os.PathLike[str]) -> bool:
    """Whether an address is that of a database rather than a folder."""
    return not isinstance(uri, Path) and "://" in os.fspath(uri)


def database_at(uri: str, owner: str) -> DatabaseGallery:
    """The table of a database at an address, without asking for it.

    Args:
        uri: The address.
        owner: Whose argument it is.

    Raises:
        ImportError: If the extra of that database is not installed.
        ValueError: If it is no such address.
    """
    match = _SCHEME.fullmatch(str(uri))
    scheme, inner, rest = match.groups() if match else ("", None, "")
    place, _, name = rest.rpartition("/")
    if scheme not in ("lancedb", "milvus") or not place:
        raise ValueError(
            f"`uri` of {owner} must be {FORMS}. Received: {_shown(uri)!r}."
        )
    if "@" in place.partition("/")[0]:
        raise ValueError(
            f"`uri` of {owner} must not contain a password, because error "
            f"messages would show it. Received: {_shown(uri)!r}. Use "
            "environment variables: MILVUS_TOKEN, or those of the object store."
        )
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"`uri` of {owner} must end with the name of a table: letters, "
            f"digits and _. Received: {name!r} in {_shown(uri)!r}."
        )
    if scheme == "lancedb":
        from keras_dml.search.lance import LanceGallery

        folder = f"{inner}://{place}" if inner else place
        return LanceGallery(str(uri), folder, name)
    from keras_dml.search.milvus import MilvusGallery

    is_file = place.endswith(".db")
    address = place if is_file else f"{inner or 'http'}://{place}"
    return MilvusGallery(str(uri), address, name)


def _shown(uri: object) -> str:
    """An address without a password."""
    return re.sub(r"//[^/@]*@", "//…@", str(uri))
