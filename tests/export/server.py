"""Serves requests as TensorFlow Serving does: `server.py EXPORT FILE FILE`.

Neither Keras nor the package can be imported here. Like the server, it
loads the graph into a session, looks the signature up, feeds the tensors
that it names and fetches those that it names; eager code has no part in
that. It first plays the warm-up requests.

The files are pickled: serialized requests, and serialized responses, or
the error of a request that failed.
"""

import pickle
import sys

import tensorflow as tf
from messages import PredictionLog, PredictRequest, PredictResponse
from tensorflow.core.framework import tensor_pb2

sys.modules["keras"] = sys.modules["keras_dml"] = None  # type: ignore

WARMUP = "/assets.extra/tf_serving_warmup_requests"


def to_array(proto):
    content = proto.SerializeToString()
    return tf.make_ndarray(tensor_pb2.TensorProto.FromString(content))


def predict(session, signatures, request):
    signature = signatures[request.model_spec.signature_name]
    inputs = {entry.key: to_array(entry.value) for entry in request.inputs}
    if inputs.keys() != signature.inputs.keys():
        raise ValueError(f"{set(inputs)} for {set(signature.inputs)}")
    names = sorted(signature.outputs)
    values = session.run(
        [signature.outputs[name].name for name in names],
        {signature.inputs[key].name: x for key, x in inputs.items()},
    )
    response = PredictResponse(model_spec=request.model_spec)
    for name, value in zip(names, values, strict=True):
        dtype = tf.as_dtype(signature.outputs[name].dtype)
        proto = tf.make_tensor_proto(value, dtype)
        entry = response.outputs.add(key=name)
        entry.value.MergeFromString(proto.SerializeToString())
    return response


def main(export, requests_file, responses_file):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], export)
        for record in tf.compat.v1.io.tf_record_iterator(export + WARMUP):
            log = PredictionLog.FromString(record).predict_log
            predict(session, loaded.signature_def, log.request)
        responses = []
        for content in pickle.load(open(requests_file, "rb")):
            request = PredictRequest.FromString(content)
            try:
                response = predict(session, loaded.signature_def, request)
                responses.append(response.SerializeToString())
            except tf.errors.OpError as error:
                responses.append(error.message)
    pickle.dump(responses, open(responses_file, "wb"))


main(*sys.argv[1:])
