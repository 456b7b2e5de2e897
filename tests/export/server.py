"""Serves requests as TensorFlow Serving does: `server.py EXPORT FILE FILE`.

Neither Keras nor the package can be imported here. Like the server, it
loads the graph into a session, looks the signature up, feeds the tensors
that it names and fetches those that it names; eager code has no part in
that. It first plays the warm-up requests.

The files are pickled: requests, each a signature and its inputs by name; and
outputs by name, or the error of a request that failed.
"""

import pickle
import sys

import tensorflow as tf
from messages import PredictionLog
from tensorflow.core.framework import tensor_pb2

sys.modules["keras"] = sys.modules["keras_dml"] = None  # type: ignore

WARMUP = "/assets.extra/tf_serving_warmup_requests"


def to_array(proto):
    content = proto.SerializeToString()
    return tf.make_ndarray(tensor_pb2.TensorProto.FromString(content))


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
        for record in tf.compat.v1.io.tf_record_iterator(export + WARMUP):
            request = PredictionLog.FromString(record).predict_log.request
            inputs = {x.key: to_array(x.value) for x in request.inputs}
            name = request.model_spec.signature_name
            predict(session, signatures[name], inputs)
        responses = []
        for name, inputs in pickle.load(open(requests_file, "rb")):
            try:
                responses.append(predict(session, signatures[name], inputs))
            except tf.errors.OpError as error:
                responses.append(error.message)
    pickle.dump(responses, open(responses_file, "wb"))


main(*sys.argv[1:])
