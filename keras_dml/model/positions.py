"""Positions of vision transformers that must not train."""

import keras


def freeze_positions(model: keras.Model) -> None:
    """Keeps the positions of a DINO of KerasHub from training.

    KerasHub saves trained ones only if their sum has become smaller. No file
    says that a variable does not train, so a loaded model needs this too.
    """
    for v in model.weights:
        if v.name == "interpolated_position_embeddings":
            v.trainable = False
