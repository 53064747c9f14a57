"""What goes wrong with commands and executables."""

from __future__ import annotations

from .base import SoftIPUError

# --- 15xx: commands --------------------------------------------------------------------------


class NotOnSoftwareIpu(SoftIPUError):
    code = 1501
    cause = "The option reads or drives hardware that a software IPU does not have."
    remedy = "Leave the option out; docs/tools.md lists what each tool offers here."


class PortInUse(SoftIPUError):
    code = 1502
    cause = "Another program listens on that port."
    remedy = "Choose another with --port, or end the other program."


class ScriptMissing(SoftIPUError):
    code = 1503
    cause = "The script or module to run does not exist."
    remedy = "Check the path; for modules use `softipu run -m NAME`."


class UsageError(SoftIPUError):
    code = 1504
    cause = "The command line has an unknown option, a missing argument or a wrong value."
    remedy = "Add --help to see what the command takes."


class OutputFailed(SoftIPUError):
    code = 1506
    cause = "The disk is full, or whoever read the output went away."
    remedy = "Free some space, or send the output elsewhere."


class SelfTestFailed(SoftIPUError):
    code = 1505
    cause = "A check of `softipu doctor` did not pass."
    remedy = "Read the failed lines above; attach the zip to a bug report."


# --- 16xx: executables and their cache -------------------------------------------------------


class ExecutableForeign(SoftIPUError):
    code = 1601
    cause = "The file is not an executable of softipu, or another front end made it."
    remedy = "Check the path; load a file with the front end that saved it."


class ExecutableCorrupt(SoftIPUError):
    code = 1602
    cause = "The file was cut short, altered or damaged after it was written."
    remedy = "Copy it again from where it is intact, or compile and save the program anew."


class ExecutableVersion(SoftIPUError):
    code = 1603
    cause = "Another version of softipu, with another file format, wrote the executable."
    remedy = (
        "Compile and save the program anew, or load it with the version that the message names."
    )


class ExecutableUnreadable(SoftIPUError):
    code = 1604
    cause = "There is no such file, or this user may not read it."
    remedy = "Check the path and its permissions."


class ExecutableUnwritable(SoftIPUError):
    code = 1605
    cause = "The directory does not exist, is full, or may not be written by this user."
    remedy = "Save to another path, free some space, or correct the permissions."


class CacheUnusable(SoftIPUError):
    code = 1606
    cause = "The cache directory cannot be made, locked or written, or its disk is full."
    remedy = (
        "Give another directory to enableExecutableCaching or POPTORCH_CACHE_DIR, free some space "
        "(`softipu cache clear`), or unset it to compile every time."
    )


class NotInCache(SoftIPUError):
    code = 1607
    cause = "No executable in the cache has that key: it was removed, or never there."
    remedy = "`softipu cache list` lists the keys; the first characters of one are enough."


class NotPortable(SoftIPUError):
    code = 1608
    cause = "The program holds something that only exists in this process and fits in no file."
    remedy = "Run it without saving or caching, or leave out what the message names."
