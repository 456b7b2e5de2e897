"""Pages of one file, for people: the skeleton, and pictures within."""

from keras_dml.html.page import document
from keras_dml.html.pictures import data_uri

__all__ = ["data_uri", "document"]
