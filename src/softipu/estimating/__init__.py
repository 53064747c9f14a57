"""Estimates for people and programs: `softipu.estimate`, its text, and the command.

The machine model itself is `softipu.machine`; here a model of any front end becomes its graph.
"""

from .api import chip_of, estimate
from .text import compared, summary

__all__ = ["chip_of", "compared", "estimate", "summary"]
