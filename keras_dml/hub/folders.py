"""Folders of pretrained models: written, read, and uploaded."""

import contextlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from keras_dml.hub.card import card
from keras_dml.recipes import dump
from keras_dml.runs.folder import load_model, load_outcome
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.files import atomic_file, read_regular, write_atomically
from keras_dml.utils.models import read_model
from keras_dml.utils.provenance import versions

MODEL, CONFIG, CARD, RECIPE = (
    "model.keras",
    "config.json",
    "README.md",
    "recipe.yaml",
)
FILES = (MODEL, CONFIG, CARD, RECIPE)

_FORMAT, _VERSION = "keras-dml model", 1
_MOST_BYTES = 2**20


def save_pretrained(
    model_or_run: keras.Model | str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    tags: Sequence[str] = (),
) -> Path:
    """Writes a model with its card, as used on the Hugging Face Hub.

    The folder receives `model.keras`, without the optimizer, `config.json` and
    `README.md`, the model card. For a run, it also receives `recipe.yaml`, and
    the card contains the data and the metrics with 95 % intervals.

    Args:
        model_or_run: A model, or the folder of a finished run, whose best model
            is written.
        folder: The folder to write to; it is created if necessary.
        name: Name of the model in the card; by default, the name of the folder.
        tags: Additional tags of the card. You must choose a license yourself.

    Returns:
        The folder.

    Raises:
        FileExistsError: If the folder contains other files.
        FileNotFoundError: If the run is not finished.
        RecipeError: If the folder is not that of a run.
    """
    path = Path(folder)
    others = {x.name for x in path.iterdir()} if path.is_dir() else set()
    if others and CONFIG not in others:
        raise FileExistsError(
            "`folder` of save_pretrained must be new, or written by "
            f"save_pretrained. Received: {os.fspath(folder)!r}, which contains "
            f"{', '.join(sorted(others)[:3])}. Use another folder."
        )
    outcome = None
    if isinstance(model_or_run, keras.Model):
        model = model_or_run
    else:
        outcome = load_outcome(model_or_run)
        model = load_model(model_or_run)
        write_atomically(path / RECIPE, dump(outcome.recipe))
    with atomic_file(path / MODEL) as partial:
        model.save(partial, include_optimizer=False)
    title = name or path.resolve().name
    write_atomically(path / CARD, card(model, title, outcome, tags))
    config = {
        "format": _FORMAT,
        "format_version": _VERSION,
        "library_name": "keras",
        "embedding_dim": model.output.shape[-1],
        "input_shape": model.input_shape,
        "versions": versions(),
    }
    write_atomically(path / CONFIG, json.dumps(config, indent=2) + "\n")
    return path


def from_pretrained(
    folder_or_repo: str | os.PathLike[str],
    *,
    revision: str | None = None,
    token: str | None = None,
) -> keras.Model:
    """Loads a model from a folder or a repository on the Hugging Face Hub.

    No code from the model is executed: it is loaded in Keras's safe mode, which
    refuses Lambda layers and unregistered classes.

    Args:
        folder_or_repo: A folder written by `save_pretrained`, or "owner/name".
            An existing folder takes precedence.
        revision: Branch, tag or commit of the repository.
        token: Access token for private repositories.

    Raises:
        ImportError: If huggingface-hub is needed for the download and not
            installed.
        OSError: If a file cannot be read, or the repository does not exist.
        ValueError: If the model was not written by `save_pretrained`, or is
            damaged.
    """
    path = Path(folder_or_repo)
    if not path.is_dir():
        hub = import_extra("from_pretrained", "huggingface_hub", "hub")
        path = Path(
            hub.snapshot_download(
                os.fspath(folder_or_repo),
                revision=revision,
                token=token,
                allow_patterns=list(FILES),
            )
        )
    _check(path, os.fspath(folder_or_repo))
    return read_model(path / MODEL)


def _check(path: Path, source: str) -> None:
    """Raises ValueError for a folder of something else."""
    found: Any = None
    with contextlib.suppress(FileNotFoundError, ValueError, RecursionError):
        found = json.loads(read_regular(path / CONFIG, _MOST_BYTES))
    wanted = {"format": _FORMAT, "format_version": _VERSION}
    if not isinstance(found, dict) or not wanted.items() <= found.items():
        raise ValueError(
            "`folder_or_repo` of from_pretrained must contain a model written "
            f"by save_pretrained, with a {CONFIG}. Received: {source!r}. Use "
            "keras.saving.load_model for other models."
        )


def push_to_hub(
    model_or_run: keras.Model | str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    tags: Sequence[str] = (),
    commit_message: str = "Model of keras-dml",
    token: str | None = None,
) -> str:
    """Uploads a model with its card to the Hugging Face Hub.

    Args:
        model_or_run: A model, or the folder of a finished run.
        repo_id: "owner/name"; the repository is created if it does not exist.
        private: Whether a new repository is private; None uses the owner's
            default.
        revision: Branch to commit to.
        tags: Additional tags of the card. You must choose a license yourself.
        commit_message: Message of the commit.
        token: Access token; by default, the one from `hf auth login`.

    Returns:
        The address of the commit.

    Raises:
        ImportError: If huggingface-hub is not installed.
        OSError: If the Hub cannot be reached, or refuses the upload.
        RecipeError: If the folder is not that of a run.
    """
    hub = import_extra("push_to_hub", "huggingface_hub", "hub")
    with tempfile.TemporaryDirectory() as folder:
        written = save_pretrained(
            model_or_run, os.path.join(folder, "model"), name=repo_id, tags=tags
        )
        api = hub.HfApi(token=token)
        api.create_repo(repo_id, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=written,
            revision=revision,
            commit_message=commit_message,
            allow_patterns=list(FILES),
        )
    return str(commit.commit_url)
