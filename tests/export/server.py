"""Serves requests as TensorFlow Serving does: `server.py EXPORT FILE FILE`.

Neither Keras nor the package can be imported here. Like the server, it
loads the graph into a session, looks the signature up, feeds the tensors
that it names and fetches those that it names; eager code has no part in
that.

The files are pickled: requests, each a signature and its inputs by name; and
outputs by name, or the error of a request that failed.
"""

import pickle
import sys

import tensorflow as tf

sys.modules["keras"] = sys.modules["keras_dml"] = None  # type: ignore


def predict(session, signature, inputs):
    if inputs.keys() != signature.inputs.keys():
        raise ValueError(f"{set(inputs)} for {set(signature.inputs)}")
    fetched = {name: x.name for name, x in signature.outputs.items()}
    fed = {signature.inputs[name].name: x for name, x in inputs.items()}
    return session.run(fetched, fed)


def main(export, requests_file, responses_file):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], export)
        signatures = loaded.signature_def
        responses = []
        for name, inputs in pickle.load(open(requests_file, "rb")):
            try:
                responses.append(predict(session, signatures[name], inputs))
            except tf.errors.OpError as error:
                responses.append(error.message)
    pickle.dump(responses, open(responses_file, "wb"))


main(*sys.argv[1:])
