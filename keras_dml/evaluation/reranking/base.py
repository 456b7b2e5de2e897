"""The interface of all kinds of re-ranking, and their registry."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from keras_dml.evaluation.ranks.dense import Distances
from keras_dml.utils.arguments import Checked
from keras_dml.utils.registry import Registry
from keras_dml.utils.types import FloatArray, Rows


class Reranking(Checked):
    """Improves rankings using the neighbors of queries and of the gallery.

    A kind of re-ranking overrides one method: `embeddings`, if its result can
    be searched as before, or `distances`, if it cannot.

    Attributes:
        supported: Distances that it is defined for.
    """

    supported: tuple[str, ...] = ("cosine",)

    def embeddings(
        self, queries: FloatArray, gallery: FloatArray, itself: Rows
    ) -> tuple[FloatArray, FloatArray]:
        """Returns new embeddings of queries, (Q, D), and gallery, (G, D).

        Args:
            queries: (Q, D).
            gallery: (G, D).
            itself: Position of each query in the gallery, or −1, (Q,).
        """
        return queries, gallery

    def distances(
        self,
        queries: FloatArray,
        gallery: FloatArray,
        itself: Rows,
        distance: str,
    ) -> Distances | None:
        """Returns new distances of queries to the gallery, or None if
        unchanged.

        Args:
            queries, gallery, itself: See `embeddings`.
            distance: One of `supported`.
        """
        return None


RERANKING: Registry[type[Reranking]] = Registry("re-ranking")
"""All kinds of re-ranking, by name."""

Kind: TypeAlias = str | Mapping[str, Any] | Reranking
"""A name; a name and arguments, {"name": …, "k1": …}; or an object."""


def rerankings(
    given: Kind | Sequence[Kind] | None, distance: Any, owner: str
) -> list[Reranking]:
    """The steps to apply, in order.

    Raises:
        ValueError: If the kind is unknown, if arguments are wrong, or if a
            kind is not defined for the distance, or must be last but is not.
    """
    if given is None:
        return []
    if isinstance(given, str | Mapping | Reranking):
        given = [given]
    made = [_made(x, owner) for x in given]
    for kind in made:
        if distance not in kind.supported:
            raise ValueError(
                f"`distance` of {owner} must be one of {kind.supported} for "
                f"{type(kind).__name__}. Received: distance={distance!r}. For "
                "embeddings of unit length, 'cosine' gives the same ranking "
                "as 'euclidean'."
            )
    final = [type(x).distances is not Reranking.distances for x in made]
    if any(final[:-1]):
        raise ValueError(
            f"`rerank` of {owner} must have a last step that computes "
            "distances, "
            "and other steps that compute embeddings. Received: "
            f"{[type(x).__name__ for x in made]}."
        )
    return made


def _made(given: Any, owner: str) -> Reranking:
    if isinstance(given, Reranking):
        return given
    name, arguments = given, {}
    if isinstance(given, Mapping):
        arguments = {str(k): v for k, v in given.items() if k != "name"}
        name = given.get("name")
    if not isinstance(name, str):
        raise ValueError(
            f"`rerank` of {owner} must be a name, a name and arguments, or an "
            f"object. Received: {given!r}. Use one of {tuple(RERANKING)}, or "
            "{'name': 'k_reciprocal', 'k1': 20}."
        )
    kind = RERANKING[name].value
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(
            f"`rerank` of {owner} must have valid arguments of "
            f"{kind.__name__}. "
            f"Received: {dict(arguments)}: {error}."
        ) from error
