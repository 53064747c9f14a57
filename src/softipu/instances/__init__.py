"""Instances: the processes of one program, as poprun starts them.

`environment` says which of them this process is; `group` lets them compute together. No framework
is imported before a group starts. Everything else about instances asks here.
"""

from .environment import Instance, is_launched, read

__all__ = ["Instance", "is_launched", "read"]
