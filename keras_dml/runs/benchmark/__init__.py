"""Benchmarks: several recipes, several seeds, one table."""

from keras_dml.runs.benchmark.plan import Plan, read_plan
from keras_dml.runs.benchmark.training import benchmark

__all__ = ["Plan", "benchmark", "read_plan"]
