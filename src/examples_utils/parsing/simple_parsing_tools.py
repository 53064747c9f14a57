"""Options as dataclasses, for PopXL programs: not offered, and the import says so."""

from softipu.errors import BenchDependency

raise BenchDependency(
    "examples_utils.parsing.simple_parsing_tools is not offered.",
    cause="Only PopXL programs use it, which softipu does not run yet.",
    remedy="Parse the options with argparse, or with the package simple-parsing itself.",
)
