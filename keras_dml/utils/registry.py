"""Registries: things found by name, each declared once, where it is defined."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from keras_dml.utils.arguments import did_you_mean

T = TypeVar("T")


@dataclass(frozen=True)
class Paper:
    """Where something was published, for instance at the venue "CVPR 2019"."""

    title: str
    authors: str
    venue: str
    url: str = ""

    def __str__(self) -> str:
        return f'{self.authors}, "{self.title}", {self.venue}'


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One thing in a registry.

    Attributes:
        name: What recipes, commands and messages call it.
        value: The class or function itself.
        definition: What it is, in one line.
        paper: Where it was published, if anywhere.
        details: What else its kind declares, by name.
    """

    name: str
    value: T
    definition: str
    paper: Paper | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class Registry(Mapping[str, Entry[T]]):
    """Things of one kind, by name.

    Args:
        kind: What messages call such a thing: "loss", "method".

    Example:
        ```python
        LOSSES = Registry("loss")

        @LOSSES.register("triplet", "positives closer than negatives")
        class TripletLoss(PairLoss): ...
        ```
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry[T]] = {}

    def register(
        self,
        name: str,
        definition: str = "",
        paper: Paper | None = None,
        **details: Any,
    ) -> Callable[[T], T]:
        """A decorator that enters what it decorates, and leaves it as it is.

        Arguments are those of `Entry`. By default the definition is what the
        first line of the docstring says after its name and colon, and the
        paper the first one under "Reference:".

        Raises:
            ValueError: If the name is taken by something else.
        """

        def enter(value: T) -> T:
            taken = self._entries.get(name)
            if taken is not None and not _is_again(taken.value, value):
                raise ValueError(
                    f"The {self.kind} {name!r} is already registered as "
                    f"{taken.value!r}. Received: {value!r}. Use another name."
                )
            what = definition or _defined(value)
            source = paper or cited_paper(value)
            self.add(Entry(name, value, what, source, details))
            return value

        return enter

    def add(self, entry: Entry[T]) -> None:
        """Adds an entry. Registries of a kind may check it or do more."""
        self._entries[entry.name] = entry

    def __getitem__(self, name: str) -> Entry[T]:
        """The entry of a name, or of "package.module:name".

        The latter imports the module, which registers it, first.

        Raises:
            ValueError: If there is none, with the nearest known name.
        """
        module, colon, own = str(name).rpartition(":")
        if colon:
            name = own
            import_own(self.kind, name, module)
        check_known(self.kind, name, self._entries)
        return self._entries[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The entry of a name, or `default`."""
        return self._entries.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


def _is_again(old: Any, new: Any) -> bool:
    # A module that is run again (a notebook's cell) defines its things anew.
    names = ("__module__", "__qualname__")
    return all(getattr(old, n, None) == getattr(new, n, 0) for n in names)


def _defined(value: Any) -> str:
    line = (inspect.getdoc(value) or "").partition("\n")[0].removesuffix(".")
    whole, _, after_name = line.partition(": ")
    return after_name or whole[:1].lower() + whole[1:]


_CITATION = re.compile(
    r'(?P<authors>[^"]+), "(?P<title>[^"]+)", (?P<venue>[^,;.]+)'
)


def cited_paper(value: Any) -> Paper | None:
    """The first paper under "Reference:" in a docstring, if there is one.

    It reads `Authors, "Title", Venue Year, where in it, https://address.`
    """
    _, _, section = (inspect.getdoc(value) or "").partition("\nReference:\n")
    text = " ".join(section.partition("\n\n")[0].split())
    found = _CITATION.match(text)
    if found is None:
        return None
    address = re.search(r"https?://[^\s;]+", text.partition("; ")[0])
    return Paper(
        **found.groupdict(), url=address[0].rstrip(".,") if address else ""
    )


def import_own(kind: str, name: str, module: str) -> None:
    """Imports the module of a user that registers something by name.

    Raises:
        ValueError: If it cannot be imported.
    """
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"The {kind} {name!r} belongs to the module {module!r}, which "
            f"cannot be imported: {error}. Is its folder in PYTHONPATH?"
        ) from error


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises `ValueError` naming the nearest known name, or else all."""
    names = sorted(known)
    if name not in names:
        others = f" Known are: {', '.join(names)}."
        hint = did_you_mean(name, names) or others
        raise ValueError(f"There is no {kind} {name!r}.{hint}")


def import_modules(package: str) -> None:
    """Imports every module of a package, so that what they hold registers."""
    found = importlib.import_module(package)
    for module in pkgutil.iter_modules(found.__path__, f"{package}."):
        importlib.import_module(module.name)


def attributes(module: str, registry: Registry[T]) -> Callable[[str], T]:
    """The `__getattr__` of a package whose attributes are registered."""

    def __getattr__(name: str) -> T:
        if name not in registry:
            raise AttributeError(f"module {module!r} has no {name!r}")
        return registry[name].value

    return __getattr__
