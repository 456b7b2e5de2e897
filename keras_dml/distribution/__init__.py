"""Distributed training on several devices and machines."""

from keras_dml.distribution.clusters import connect

__all__ = ["connect"]
