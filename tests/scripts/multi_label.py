"""Pictures with several tags: alike are those that share one."""

import keras
import numpy as np
from keras import layers

import keras_dml as dml

TAGS = ("red", "green", "blue", "round", "striped", "large")
rng = np.random.default_rng(0)
looks = rng.normal(size=(6, 12))


def pictures(count):
    tagged = rng.random((count, 6)) < 0.25
    features = tagged @ looks + rng.normal(0, 0.5, (count, 12))
    tags = [{TAGS[i] for i in np.flatnonzero(row)} for row in tagged]
    return dml.data.ArraySet(features.astype("float32"), tags, names=TAGS)


train, test = pictures(400), pictures(150)
sampler = dml.data.MultiLabelBalanced(
    train.labels, classes_per_batch=6, images_per_class=6
)
features = keras.Input((12,))
hidden = layers.Dense(32, activation="relu")(features)
model = dml.methods.baseline(
    keras.Model(features, hidden), embedding_dim=8, loss="multi_similarity"
)
model.compile(keras.optimizers.Adam(3e-3))
before = dml.evaluation.evaluate(model, test, metrics=("map@r", "ndcg@10"))
model.fit(dml.data.pipeline(train, sampler), epochs=10)
after = dml.evaluation.evaluate(model, test, metrics=("map@r", "ndcg@10"))
assert after["map@r"] > before["map@r"] + 0.05, (before, after)
