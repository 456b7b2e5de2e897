"""The phases of divide-and-conquer training."""

from collections.abc import Sequence
from typing import Any, NamedTuple

LOSSES = ("sliced", "full")
SOURCES = ("clusters", "all")


class Phase(NamedTuple):
    """A stretch of epochs that train alike.

    Attributes:
        until: The epoch before which the phase ends; None for the rest.
        loss: "sliced", on one learner's slice, or "full", on the merged
            embedding.
        source: "clusters", batches from one cluster, or "all" data.
    """

    until: int | None
    loss: str
    source: str


def default_phases(epochs: int) -> list[Phase]:
    """The paper's two: alternate, then fine-tune the merged embedding.

    The paper does not say how long to fine-tune; here it is the last
    fifth of the epochs, at least one where there are two or more.
    """
    fine_tuning = max(1, round(epochs / 5)) if epochs > 1 else 0
    return [
        Phase(epochs - fine_tuning, "sliced", "clusters"),
        Phase(None, "full", "all"),
    ]


def check_phases(phases: Sequence[Any]) -> list[Phase]:
    """Checks phases given by the user.

    Raises:
        ValueError: If a phase is not (until, loss, source), or phases do
            not follow one another.
    """
    checked = [_check_phase(phase) for phase in phases]
    ends = [phase.until for phase in checked]
    if not ends or ends[-1] is not None or None in ends[:-1]:
        raise ValueError(
            "`phases` of Recluster must end with a phase that lasts until "
            f"None, and only that one may. Received: phases={phases!r}. "
            'For instance [(8, "sliced", "clusters"), (None, "full", "all")].'
        )
    numbers = [end for end in ends if end is not None]
    if numbers != sorted(set(numbers)):
        raise ValueError(
            "`phases` of Recluster must end at increasing epochs. Received: "
            f"phases={phases!r}."
        )
    return checked


def _check_phase(phase: Any) -> Phase:
    fits = (
        isinstance(phase, list | tuple)
        and len(phase) == 3
        and (phase[0] is None or isinstance(phase[0], int))
        and phase[1] in LOSSES
        and phase[2] in SOURCES
    )
    if not fits:
        raise ValueError(
            "`phases` of Recluster must hold triples (until_epoch, loss, "
            f"source) with loss in {LOSSES} and source in {SOURCES}. "
            f"Received: {phase!r}."
        )
    return Phase(*phase)


def phase_at(phases: list[Phase], epoch: int) -> Phase:
    """The phase that `epoch` belongs to."""
    return next(
        phase for phase in phases if phase.until is None or epoch < phase.until
    )
