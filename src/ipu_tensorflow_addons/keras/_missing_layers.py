"""Layers of Graphcore's addons that are not here."""

from .._missing import getter

look_up = getter(
    "ipu_tensorflow_addons.keras.layers",
    {
        "EffectiveTransformer": "Build the transformer from tf.keras.layers.MultiHeadAttention, "
        "and pass the attention mask of sequences that were packed into one."
    },
)
