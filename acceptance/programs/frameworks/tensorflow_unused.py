"""Imports TensorFlow and leaves the card alone."""

import numpy
import tensorflow as tf

with tf.device("CPU:0"):
    print(f"version={tf.__version__} sum={numpy.arange(4).sum()}")
