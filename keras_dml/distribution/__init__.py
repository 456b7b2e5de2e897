"""Distributed training on several devices and machines.

Open first: `clusters`, which connects workers. `batches` divides a batch among
replicas, `gathering` brings their examples and gradients together, `workers`
lets the chief alone do what only one may do, `strategies` asks TensorFlow,
`processes` asks JAX.

Imports: `data`, `utils`.
"""

from keras_dml.distribution.clusters import connect

__all__ = ["connect"]
