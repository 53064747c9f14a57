"""Logging of notebooks to Graphcore's servers: not offered, and the import says so."""

from softipu.errors import BenchDependency

raise BenchDependency(
    "examples_utils.notebook_logging is not offered.",
    cause="It sends what users do in notebooks to a service of Graphcore's.",
    remedy="Take the cell out; nothing else depends on it.",
)
