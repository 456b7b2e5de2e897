"""Distribution: what R replicas do as one."""

from keras_dml.distribution.clusters import connect

__all__ = ["connect"]
