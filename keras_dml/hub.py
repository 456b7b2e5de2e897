"""Models on the Hugging Face Hub, with a model card.

Keras loads them: `keras.saving.load_model("hf://owner/name")`.

Imports: `runs` and below.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import keras
import yaml

from keras_dml.recipes import dump
from keras_dml.runs.folder import load_model, load_outcome
from keras_dml.runs.outcome import Outcome, definitions, markdown, metric_rows
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.files import write_atomically

TAGS = ("metric-learning", "retrieval", "embeddings", "keras-dml")

_CARD = """# {name}

An embedding model with {dimension} dimensions and {parameters:,} parameters,
trained with keras-dml. Shape of the inputs: {input_shape}.

```python
import keras
import keras_dml  # Registers the layers of the model.

model = keras.saving.load_model("hf://{name}")
embeddings = model.predict(images)
```

Embeddings have unit length, so their dot product is the cosine similarity.
"""


def push_to_hub(
    model_or_run: keras.Model | str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    tags: Sequence[str] = (),
    token: str | None = None,
    trust: bool = False,
) -> str:
    """Uploads a model with its card to the Hugging Face Hub.

    The repository receives the model as Keras saves it, and `README.md`, the
    card. For a run, it also receives `recipe.yaml`, and the card contains the
    data and the metrics with 95 % intervals. `import keras_dml` and
    `keras.saving.load_model("hf://owner/name")` load it.

    Args:
        model_or_run: A model, or the folder of a finished run, whose best model
            is uploaded.
        repo_id: "owner/name"; the repository is created if it does not exist.
        private: Whether a new repository is private; None uses the owner's
            default.
        tags: Additional tags of the card. You must choose a license yourself.
        token: Access token; by default, the one from `hf auth login`.
        trust: As for `runs.load_model`.

    Returns:
        The address of the commit.

    Raises:
        FileNotFoundError: If the run is not finished.
        ImportError: If huggingface-hub is not installed.
        OSError: If the Hub cannot be reached, or refuses the upload.
        RecipeError: If the folder is not that of a run.
    """
    hub = import_extra("push_to_hub", "huggingface_hub", "hub")
    outcome, model = None, model_or_run
    if not isinstance(model, keras.Model):
        outcome = load_outcome(model, trust=trust)
        model = load_model(model, trust=trust)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keras.saving.save_model(model, folder, zipped=False)
        write_atomically(
            folder / "README.md", card(model, repo_id, outcome, tags)
        )
        if outcome is not None:
            write_atomically(folder / "recipe.yaml", dump(outcome.recipe))
        api = hub.HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repo_id, folder_path=folder)
    return str(commit.commit_url)


def card(
    model: keras.Model,
    name: str,
    outcome: Outcome | None = None,
    tags: Sequence[str] = (),
) -> str:
    """Returns a model card, with metrics if there is the outcome of a run."""
    is_image = len(model.input_shape) == 4
    task = "image-feature-extraction" if is_image else "feature-extraction"
    front: dict[str, object] = {
        "library_name": "keras",
        "pipeline_tag": task,
        "tags": list(dict.fromkeys([*TAGS, *tags])),
    }
    text = _CARD.format(
        name=name,
        dimension=model.output.shape[-1],
        parameters=model.count_params(),
        input_shape=model.input_shape,
    )
    if outcome is not None:
        results, data = outcome.after, outcome.recipe.data.name
        result = {
            "task": {"type": task},
            "dataset": {"name": data, "type": data},
            "metrics": [
                {"name": x, "type": x, "value": round(float(value), 6)}
                for x, value in results.items()
            ],
        }
        front["datasets"] = [data]
        front["model-index"] = [{"name": name, "results": [result]}]
        counts = ", ".join(f"{n:,} for {x}" for x, n in outcome.images.items())
        units = "queries" if results.per_query else None
        text += (
            f"\nImages of `{data}`: {counts}. The epoch was chosen on "
            "validation classes; test classes were measured "
            f"{outcome.protocol_phrase()}.\n\n"
            + markdown(metric_rows(results, "value", units))
            + "".join(f"\n\n{line}" for line in definitions(results))
            + "\n"
        )
    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n{text}"
