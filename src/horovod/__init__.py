"""horovod: softipu's own, for programs that import horovod.torch beside popdist.

Only what such programs use, over the connections of `softipu.instances`. A Horovod that is really
installed comes first: see `_other`.
"""

from __future__ import annotations

from ._other import installed

_OTHER = installed(__path__)
if _OTHER is not None:
    # Its modules are found before ours: this file then is only the door to them.
    __path__.insert(0, _OTHER)
    with open(f"{_OTHER}/__init__.py", encoding="utf-8") as _source:
        exec(compile(_source.read(), f"{_OTHER}/__init__.py", "exec"))
else:
    __version__ = "0.28.1+softipu"
