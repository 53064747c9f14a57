"""Estimates for people and programs: `softipu.estimate`, its text, and the command.

The machine model itself is `softipu.machine`; here a model of any front end becomes its graph.
"""

from softipu.machine.text import compared, summary

from .api import chip_of, estimate

__all__ = ["chip_of", "compared", "estimate", "summary"]
