"""push_to_hub: uploading a model to the Hugging Face Hub."""

import os
import tempfile
from collections.abc import Sequence

import keras

from keras_dml.hub.folders import FILES, save_pretrained
from keras_dml.utils.arguments import import_extra


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
