"""Part of tensorflow.python.ipu: eager."""
