"""Training on several devices, and in a cluster that the user has set up.

Open first: `devices`. `batches` divides a batch among replicas, `gathering`
brings their examples and gradients together, `workers` lets the first process
of a cluster do what only one may do, `strategies` asks TensorFlow.

Imports: `data`, `utils`.
"""

from keras_dml.distribution.devices import use_devices

__all__ = ["use_devices"]
