"""Texts with typing errors: trained on some names, searched among others."""

import keras

import keras_dml as dml

splits = dml.data.symbol_names()
sampler = dml.data.ClassBalanced(
    splits.train.labels,
    classes_per_batch=16,
    images_per_class=4,
    steps_per_epoch=25,
)
model = dml.methods.baseline(
    dml.backbones.get("small_text_encoder"),
    embedding_dim=64,
    pooling="max",
    loss="multi_similarity",
)
model.compile(keras.optimizers.Adam(2e-3))
held_out = splits.validation
before = dml.evaluation.evaluate(model, held_out)
model.fit(
    dml.data.pipeline(splits.train, sampler),
    callbacks=[dml.callbacks.RetrievalEvaluation(held_out)],
)
after = dml.evaluation.evaluate(model, held_out)
assert after["map@r"] > before["map@r"] + 0.2, (before, after)

names = sorted(splits.test.names.values())
gallery = dml.data.ArraySet(dml.data.byte_tokens(names, 48), ids=names)
index = dml.search.Index.build(model, gallery)
typed = dml.data.byte_tokens(["snwoman", "hevy circled saltir"], 48)
for hits in index.search(dml.evaluation.embed(model, typed), k=3):
    print([names[hit.id] for hit in hits])
