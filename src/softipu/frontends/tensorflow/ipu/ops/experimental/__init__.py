"""Part of tensorflow.python.ipu: experimental ops."""
