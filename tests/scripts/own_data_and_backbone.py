"""My own tf.data and my own network: sampled, trained, evaluated, indexed."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import keras_dml as dml

rng = np.random.default_rng(0)
patterns = rng.uniform(0, 255, (24, 16, 16, 3))
labels = np.repeat(np.arange(24), 8)
noisy = patterns[labels] + rng.normal(0, 20, (192, 16, 16, 3))
photos = tf.data.Dataset.from_tensor_slices((noisy.astype("float32"), labels))
known, unseen = photos.take(128).batch(32), photos.skip(128).batch(32)

train = dml.data.from_dataset(known)
sampler = dml.data.ClassBalanced(train.labels, 8, images_per_class=4)

image = keras.Input((16, 16, 3))
x = layers.Rescaling(1 / 127.5, offset=-1)(image)
x = layers.Conv2D(16, 3, strides=2, activation="relu")(x)
network = keras.Model(image, layers.Conv2D(32, 3, activation="relu")(x))

model = dml.methods.baseline(network, embedding_dim=16, loss="multi_similarity")
model.compile(keras.optimizers.Adam(1e-3))
history = model.fit(
    dml.data.pipeline(train, sampler),
    epochs=3,
    validation_data=unseen,
    callbacks=[dml.callbacks.RetrievalEvaluation(unseen)],
)
results = dml.evaluation.evaluate(model, unseen)
index = dml.search.Index.build(model, dml.data.from_dataset(unseen))
hits = index.search(dml.evaluation.embed(model, unseen), k=2)
assert results["recall@1"] > 0.9, results
assert hits[0][0].row["label"] == hits[0][1].row["label"] == 16
