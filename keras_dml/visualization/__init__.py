"""What models look at: the arrays behind the papers' figures."""

from keras_dml.visualization.attention import (
    attention_maps,
    resize_maps,
    strongest_images,
)

__all__ = ["attention_maps", "resize_maps", "strongest_images"]
