"""A vision transformer of KerasHub, and groups that attend to its patches."""

import keras
import keras_hub
import numpy as np

import keras_dml as dml

data = dml.data.glyphs()
vit = keras_hub.models.ViTBackbone(
    image_shape=(48, 48, 3), patch_size=8, num_layers=1, num_heads=2,
    hidden_dim=32, mlp_dim=64,
)  # fmt: skip
rescaling = keras.layers.Rescaling(1 / 127.5, offset=-1.0)
backbone = dml.backbones.with_preprocessing(vit, rescaling)
model = dml.methods.attentive_grouping(
    backbone, embedding_dim=32, num_groups=2, loss="margin"
)

train = data.train.select(data.train.labels < 20)
test = data.test.select(np.arange(200))
sampler = dml.data.ClassBalanced(
    train.labels, classes_per_batch=8, images_per_class=4, steps_per_epoch=3
)
model.compile(keras.optimizers.Adam(1e-3))
model.fit(
    dml.data.pipeline(train, sampler, size=48, channels=3),
    callbacks=[dml.callbacks.RetrievalEvaluation(test)],
    verbose=0,
)
results = dml.evaluation.evaluate(model, test, metrics=("recall@1",))
assert 0 < results["recall@1"] <= 1

# What each group attends to: 6×6 patches, and not the class token.
maps = dml.visualization.attention_maps(model, test)
assert maps.shape == (200, 6, 6, 2)
np.testing.assert_allclose(maps.sum(axis=(1, 2)), 1, atol=1e-5)
