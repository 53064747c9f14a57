"""The converter of SavedModels for IPUs, which works on Poplar's programs: not here."""

from .._missing import missing

raise missing(
    "ipu_tensorflow_addons.saved_model_tool",
    "Export the model with model.export_for_ipu_serving, or with tensorflow.python.ipu.serving.",
)
