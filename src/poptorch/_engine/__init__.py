"""Runs captured programs: the loops of an executable, its variants, and the state on the device.

Knows nothing of user modules, options objects or leases; `poptorch._executor` ties those together.
"""
