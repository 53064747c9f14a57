"""Graphcore's addons for TensorFlow under the names that scripts import: layers and optimisers.

They are made of Keras and of `tensorflow.python.ipu`; what is missing says so when it is imported.
"""
