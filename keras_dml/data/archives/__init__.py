"""Benchmark data sets, from their unpacked archives."""

from keras_dml.data.archives._cars196 import cars196
from keras_dml.data.archives._cub200 import cub200
from keras_dml.data.archives._inshop import inshop
from keras_dml.data.archives._sop import sop
from keras_dml.data.archives._vehicleid import vehicleid

__all__ = ["cars196", "cub200", "inshop", "sop", "vehicleid"]
