"""Every failure softipu can report: one class per code, with cause and way out.

The classes are the single source of docs/errors.md. Front ends subclass or wrap them so that users
catch the type they know, and the code stays the same.
"""

from .base import *
from .containers import *
from .devices import *
from .estimates import *
from .frameworks import *
from .instances import *
from .instances_tensorflow import *
from .measuring import *
from .paddle import *
from .poprun import *
from .programs import *
from .serving import *
