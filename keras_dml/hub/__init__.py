"""Models on the Hugging Face Hub: folders with a model card.

Open first: `folders`, which writes and reads them; `pushing` uploads one.

Imports: `runs` and below.
"""

from keras_dml.hub.folders import from_pretrained, save_pretrained
from keras_dml.hub.pushing import push_to_hub

__all__ = ["from_pretrained", "push_to_hub", "save_pretrained"]
