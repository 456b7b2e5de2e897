"""What all kinds of re-ranking have in common, and their registry."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from keras_dml.evaluation.ranks.dense import Distances
from keras_dml.utils.registry import Registry
from keras_dml.utils.types import FloatArray, Rows


class Reranking:
    """Improves rankings by the neighbors of queries and of the gallery.

    A kind of re-ranking overrides one method: `embeddings`, if what it makes
    can be searched as before, or `distances`, if it cannot.

    Attributes:
        supported: Distances that it is defined for.
    """

    supported: tuple[str, ...] = ("cosine",)

    def embeddings(
        self, queries: FloatArray, gallery: FloatArray, itself: Rows
    ) -> tuple[FloatArray, FloatArray]:
        """Other embeddings of queries, (Q, D), and gallery, (G, D).

        Args:
            queries: (Q, D).
            gallery: (G, D).
            itself: Where each query stands in the gallery, or −1, (Q,).
        """
        return queries, gallery

    def distances(
        self,
        queries: FloatArray,
        gallery: FloatArray,
        itself: Rows,
        distance: str,
    ) -> Distances | None:
        """Other distances of the queries to the gallery; None for the same.

        Args:
            queries, gallery, itself: As for `embeddings`.
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
    """What to apply, in order.

    Raises:
        ValueError: If there is no such kind, if arguments are wrong, or if
            a kind is not defined for the distance, or has others after it.
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
                "embeddings of unit length 'cosine' ranks as 'euclidean' does."
            )
    final = [type(x).distances is not Reranking.distances for x in made]
    if any(final[:-1]):
        raise ValueError(
            f"`rerank` of {owner} must have its last step make distances, "
            "and the others embeddings. Received: "
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
            f"`rerank` of {owner} must be a name, a name and arguments or an "
            f"object. Received: {given!r}. Use one of {tuple(RERANKING)}, or "
            "{'name': 'k_reciprocal', 'k1': 20}."
        )
    kind = RERANKING[name].value
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(
            f"`rerank` of {owner} must have arguments of {kind.__name__}. "
            f"Received: {dict(arguments)}: {error}."
        ) from error
