"""Model cards: README.md of a model's folder, with YAML for the Hub."""

from collections.abc import Sequence

import keras
import yaml

from keras_dml.evaluation import bootstrap
from keras_dml.recipes import dump
from keras_dml.runs.outcome import Outcome, definitions, markdown, metric_rows

TAGS = ("metric-learning", "retrieval", "embeddings", "keras-dml")

_USE = """## How to use it

```python
import keras_dml as dml

model = dml.hub.from_pretrained("{name}")
embeddings = model.predict(images)
```

The folder or the name of the repository goes to `from_pretrained`. Embeddings
have unit length, so that their dot product is the cosine similarity.
"""


def card(
    model: keras.Model,
    name: str,
    outcome: Outcome | None = None,
    tags: Sequence[str] = (),
) -> str:
    """The text of a model card, with metrics if there is the outcome of a run.

    The license is left to the user.
    """
    head: dict[str, object] = {
        "library_name": "keras",
        "pipeline_tag": _task(model),
        "tags": list(dict.fromkeys([*TAGS, *tags])),
    }
    parts = [f"# {name}", _about(model), _USE.format(name=name)]
    if outcome is not None:
        head["datasets"] = [outcome.recipe.data.name]
        head["model-index"] = _index(name, _task(model), outcome)
        parts += _measured(outcome)
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n\n".join(parts) + "\n"


def _about(model: keras.Model) -> str:
    return (
        f"An embedding model with {model.output.shape[-1]} dimensions and "
        f"{model.count_params():,} parameters, trained with keras-dml. Shape "
        f"of the inputs: {model.input_shape}."
    )


def _task(model: keras.Model) -> str:
    """What the Hub calls it: pictures have a height and a width."""
    is_image = len(model.input_shape) == 4
    return "image-feature-extraction" if is_image else "feature-extraction"


def _index(name: str, kind: str, outcome: Outcome) -> list[dict[str, object]]:
    """Metrics as the Hub reads them."""
    data = {"name": outcome.recipe.data.name, "type": outcome.recipe.data.name}
    metrics = [
        {"name": metric, "type": metric, "value": round(float(value), 6)}
        for metric, value in outcome.after.items()
    ]
    result = {"task": {"type": kind}, "dataset": data, "metrics": metrics}
    return [{"name": name, "results": [result]}]


def _measured(outcome: Outcome) -> list[str]:
    units = "queries" if outcome.after.per_query else None
    intervals = bootstrap(outcome.after) if units else {}
    note = (
        "Intervals are percentile bootstrap intervals over the queries."
        if intervals
        else ""
    )
    return [
        "## Data\n\n"
        f"Trained on {outcome.images['train']:,} images of "
        f"`{outcome.recipe.data.name}`; the epoch was chosen on "
        f"{outcome.images['validation']:,} images of held-out classes.",
        f"## Metrics\n\nOn {outcome.images['test']:,} images of test classes, "
        f"{outcome.protocol_phrase()}. {note}".strip(),
        markdown(metric_rows(outcome.after, "value", units)),
        "\n".join(f"- {line}" for line in definitions(outcome.after)),
        f"## Recipe\n\n```yaml\n{dump(outcome.recipe)}```",
    ]
