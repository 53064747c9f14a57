"""What becomes an instance: ties its life to the agent's, binds itself to CPUs, is the program.

Run by its path in an isolated interpreter, with nothing but the standard library: the user's
modules and softipu's hooks belong into the program, not into this step before it.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(words: list[str]) -> None:
    """`AGENT_PID CPUS PROGRAM [ARGUMENTS]`; CPUS is `-` or numbers separated by commas."""
    agent, cpus, *command = words
    # An agent that is killed cannot end its instances; the kernel does it then.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(agent):
        sys.exit("poprun's agent ended before its instance began.")
    if cpus != "-":
        os.sched_setaffinity(0, {int(number) for number in cpus.split(",")})
    # Python ignores SIGPIPE and SIGXFSZ; programs expect them as the system has them.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.environ.pop("TORCHELASTIC_SIGNALS_TO_HANDLE", None)  # it was for the launcher
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"poprun: {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(126 if isinstance(error, PermissionError) else 127)


if __name__ == "__main__":
    main(sys.argv[1:])
