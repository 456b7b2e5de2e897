"""Models on the Hugging Face Hub: folders with a model card.

Open first: `folders`, which writes, reads and uploads them; `card` is the text.

Imports: `runs` and below.
"""

from keras_dml.hub.folders import (
    from_pretrained,
    push_to_hub,
    save_pretrained,
)

__all__ = ["from_pretrained", "push_to_hub", "save_pretrained"]
