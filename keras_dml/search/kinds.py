"""Kinds of index by their factory strings, as databases build them."""

import re
from dataclasses import dataclass

from keras_dml.search.engine import EFFORT, EXACT

_FACTORY = re.compile(
    rf"(?P<flat>{EXACT})|HNSW(?P<links>\d+)"
    r"|IVF(?P<lists>\d+),((?P<code>Flat|SQ8)|PQ(?P<parts>\d+)(np)?)"
)

_PARAMETERS = {"ivf": "nprobe", "hnsw": "efSearch"}


@dataclass(frozen=True)
class Kind:
    """A kind of index.

    Attributes:
        factory: Its factory string.
        parameters: How thoroughly it searches, as of `Index`.
        lists: Number of lists of an inverted file; 0 for others.
        links: Number of links of an HNSW graph; 0 for others.
        code: How an inverted file keeps vectors: "Flat", "SQ8" or "PQ".
        parts: Number of parts of a product quantizer.
        effort: Lists or candidates of a search; 0 for all vectors.
    """

    factory: str
    parameters: str
    lists: int = 0
    links: int = 0
    code: str = ""
    parts: int = 0
    effort: int = 0

    @classmethod
    def of(cls, factory: str, parameters: str | None, engine: str) -> "Kind":
        """The kind that a factory string names.

        Raises:
            ValueError: If `engine` has no such kind.
        """
        match = _FACTORY.fullmatch(str(factory))
        if not match:
            raise ValueError(
                f"`factory` of an Index in {engine} must be 'Flat', "
                "'IVF1024,Flat', 'IVF1024,SQ8', 'IVF1024,PQ16' or 'HNSW32'. "
                f"Received: factory={factory!r}. Use an index in a folder for "
                "other kinds."
            )
        if match["flat"]:
            return cls(factory, _given(parameters, "", engine))
        lists, links = int(match["lists"] or 0), int(match["links"] or 0)
        effort = max(1, round(lists**0.5)) if lists else 64
        name = _PARAMETERS["ivf" if lists else "hnsw"]
        given = _given(parameters, name, engine)
        return cls(
            factory,
            given or f"{name}={effort}",
            lists,
            links,
            match["code"] or ("PQ" if match["parts"] else ""),
            int(match["parts"] or 0),
            int(given.partition("=")[2]) if given else effort,
        )

    @property
    def is_exact(self) -> bool:
        """Whether it compares all vectors."""
        return self.factory == EXACT

    def refusal(self, count: int, engine: str, error: Exception) -> ValueError:
        """The error if an engine cannot build it for `count` vectors."""
        return ValueError(
            "`factory` of an Index must fit the gallery. Received: "
            f"{self.factory!r} for {count} vectors, which {engine} refuses: "
            f"{str(error).strip()[:300]}. Use {EXACT!r}, or smaller numbers."
        )

    def effort_for(self, share: float, most: int) -> int:
        """Lists or candidates for a search among a share of the rows."""
        wanted = self.effort * (EFFORT / share if share < 1 else 1)
        return min(most, -int(-wanted // 1))


def _given(parameters: str | None, name: str, engine: str) -> str:
    """Parameters, checked; empty for none."""
    text = parameters or ""
    if text and not (name and re.fullmatch(rf"{name}=[1-9]\d{{0,6}}", text)):
        raise ValueError(
            f"`parameters` of an Index in {engine} must be "
            + (f"'{name}=N'" if name else "none for 'Flat'")
            + f". Received: parameters={parameters!r}."
        )
    return text
