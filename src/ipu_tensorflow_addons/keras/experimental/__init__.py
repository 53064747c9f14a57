"""Automatic division of models into stages, which reads Poplar's profiles: not here."""

from ..._missing import missing

raise missing(
    "ipu_tensorflow_addons.keras.experimental",
    "Assign stages with keras.ipu.PipelineStage or set_pipeline_stage_assignment; "
    "softipu.estimate(model) says what each stage takes.",
)
