"""Positions of vision transformers that must not be trained."""

import keras


def freeze_positions(model: keras.Model) -> None:
    """Excludes the position embeddings of a KerasHub DINO from training.

    KerasHub saves trained position embeddings only if their sum has decreased.
    Files do not record that a variable is not trainable, so loaded models need
    this as well.
    """
    for v in model.weights:
        if v.name == "interpolated_position_embeddings":
            v.trainable = False
