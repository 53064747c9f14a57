"""Virtual IPUs in containers: what `docker run` must be told so that programs inside find them.

A container shares the host's state directory, so leases hold across its walls: `gc-monitor` shows
the same IPUs, busy or free, inside and outside.
"""
