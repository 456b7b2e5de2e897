"""Feature vectors from somewhere else: a head that makes classes compact."""

import keras
import numpy as np
from keras import layers

import keras_dml as dml

rng = np.random.default_rng(0)
centers = rng.normal(size=(40, 24))
species = np.repeat([f"species {i:02}" for i in range(40)], 10)
x = np.repeat(centers, 10, axis=0) + rng.normal(0, 0.4, (400, 24))
x = np.hstack([x, rng.normal(0, 4, (400, 8))]).astype("float32")  # And noise.

examples = dml.data.ArraySet(x, species)
splits = dml.data.DataSplits.by_class(examples, "species")
sampler = dml.data.ClassBalanced(splits.train.labels, 8, images_per_class=4)

vector = keras.Input((32,))
hidden = layers.Dense(64, activation="relu")(vector)
model = dml.methods.baseline(
    keras.Model(vector, hidden), embedding_dim=16, loss="multi_similarity"
)
model.compile(keras.optimizers.Adam(3e-3))
model.fit(
    dml.data.pipeline(splits.train, sampler),
    epochs=10,
    callbacks=[dml.callbacks.RetrievalEvaluation(splits.validation)],
)
raw = dml.evaluation.evaluate_embeddings(
    splits.test.inputs(...), splits.test.labels
)
learned = dml.evaluation.evaluate(model, splits.test)
assert learned["map@r"] > raw["map@r"] + 0.1, (raw, learned)

index = dml.search.Index.build(model, splits.test)
(hits,) = index.search(model.predict(splits.test.inputs([5])), k=3)
print([(splits.test.names[hit.row["label"]], hit.score) for hit in hits])
