"""Space: the settings of a recipe to search, and their values."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from keras_dml.recipes import Recipe, RecipeError, validate
from keras_dml.recipes.inheritance import merge, read_yaml, with_origin
from keras_dml.utils.arguments import did_you_mean, import_extra

_KEYS = ("low", "high", "log", "step")
_WAY_OUT = (
    "Use {low: 1.0e-5, high: 1.0e-2, log: true}, {low: 2, high: 8, step: 2} "
    "or a list of choices."
)


@dataclass(frozen=True)
class Space:
    """Settings by dotted key, such as "optimizer.learning_rate".

    Attributes:
        distributions: Those of Optuna.
        choices: Of settings with a list of choices, the values by the names
            that Optuna stores.
    """

    distributions: dict[str, Any]
    choices: dict[str, dict[Any, Any]]

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Values for a trial of Optuna, by dotted key."""
        for key, distribution in self.distributions.items():
            trial._suggest(key, distribution)
        return self.values(trial.params)

    def values(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that parameters of Optuna stand for."""
        return {
            key: self.choices[key][x] if key in self.choices else x
            for key, x in parameters.items()
        }


def read_space(path: str | os.PathLike[str], recipe: Recipe) -> Space:
    """Reads a space from a YAML file, and checks it with a recipe.

    Args:
        path: Keys are dotted settings of recipes. Values are ranges,
            `{low: 1.0e-5, high: 1.0e-2, log: true}`, or lists of choices.
        recipe: What is searched; each value must fit it.

    Raises:
        OSError: If the file cannot be read.
        RecipeError: If a key is unknown (the nearest known one is named), or
            a value does not fit the recipe.
        ValueError: If it is not YAML, or no space.
    """
    name = os.fspath(path)
    try:
        content = read_yaml(path)
    except OSError as error:
        raise type(error)(
            f"The space {name} cannot be read: {error.strerror}. Check its "
            "path, which is relative to the current folder."
        ) from None
    except ValueError as error:
        raise ValueError(
            f"The space {name} cannot be read: {error}. {_WAY_OUT}"
        ) from None
    return checked(content, recipe, name)


def checked(content: Any, recipe: Recipe, source: str = "of tune") -> Space:
    """The space that a mapping describes; see `read_space`."""
    if not isinstance(content, Mapping) or not content:
        raise ValueError(
            f"The space {source} must have dotted settings of the recipe as "
            f"keys. Received: {str(content)[:100]!r}. Use "
            "`optimizer.learning_rate: {low: 1.0e-5, high: 1.0e-2, log: true}`."
        )
    optuna = import_extra("tune", "optuna", "tune")
    space = Space({}, {})
    for key, given in ((str(k), x) for k, x in content.items()):
        if isinstance(given, list):
            choices = _choices(key, given)
            tried = list(choices.values())
            space.choices[key] = choices
            found = optuna.distributions.CategoricalDistribution([*choices])
        else:
            found = _range(key, given, optuna.distributions)
            tried = [found.low, found.high]
        space.distributions[key] = found
        for value in tried:
            changed(recipe, {key: value}, f"with {key}={value} ({source})")
    return space


def changed(recipe: Recipe, settings: Mapping[str, Any], source: str) -> Recipe:
    """A recipe with some settings changed.

    Raises:
        RecipeError: If they do not fit.
    """
    content = recipe.model_dump(mode="json")
    return validate(
        merge(content, with_origin(nested(settings), False)), source
    )


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{"a.b": c} → {"a": {"b": c}}.

    Raises:
        RecipeError: If a setting is inside another.
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        *above, last = key.split(".")
        section = found
        for part in above:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise RecipeError(
                    "The settings of a space must not be nested in each other. "
                    f"Received: {key!r} and {part!r}."
                )
        section[last] = value
    return found


def _choices(key: str, given: list[Any]) -> dict[Any, Any]:
    labels = {repr(_label(x)) for x in given}
    if len(given) < 2 or len(labels) < len(given):
        _refuse(key, "have at least two choices, each once", given)
    return {_label(x): x for x in given}


def _range(key: str, given: Any, distributions: Any) -> Any:
    if not isinstance(given, Mapping):
        _refuse(key, "be a range or a list of choices", given)
    for name in given:
        if name not in _KEYS:
            hint = did_you_mean(name, _KEYS)
            _refuse(key, f"have the keys {', '.join(_KEYS)}", given, hint)
    low: Any = given.get("low")
    high: Any = given.get("high")
    step, log = given.get("step"), given.get("log", False)
    if not all(map(_is_number, (low, high, 1 if step is None else step))):
        _refuse(key, "have numbers as low, high and step", given)
    if not isinstance(log, bool):
        _refuse(key, "have true or false as log", given)
    if not low < high:
        _refuse(key, "have a `low` below its `high`", given)
    if log and (low <= 0 or step is not None):
        _refuse(key, "have a `low` above 0, and no step, where log is", given)
    if step is not None:
        steps = (high - low) / step if step > 0 else 0.0
        if round(steps) < 1 or not math.isclose(steps, round(steps)):
            _refuse(key, "reach `high` in whole steps from `low`", given)
        if isinstance(low, int) and isinstance(high, int) and step % 1:
            _refuse(key, "have a whole step between integers", given)
    if isinstance(low, int) and isinstance(high, int):
        whole = int(step or 1)
        return distributions.IntDistribution(low, high, log, whole)
    return distributions.FloatDistribution(low, high, log, step)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _refuse(key: str, rule: str, given: Any, hint: str = "") -> None:
    raise ValueError(
        f"`{key}` of a space must {rule}. Received: {str(given)[:200]}.{hint} "
        f"{_WAY_OUT}"
    )


def _label(value: Any) -> Any:
    """A choice as Optuna stores it: a scalar, or what stands for another."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False)
    return text.strip()
