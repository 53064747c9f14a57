"""Errors of programs that run as several processes: poprun's instances, popdist and horovod."""

from __future__ import annotations

from .base import SoftIPUError


class InstanceEnvironment(SoftIPUError):
    code = 7200
    cause = "The variables that describe this process among poprun's instances don't fit together."
    remedy = "Start the program with poprun, or correct what the message names."


class NoRendezvous(SoftIPUError):
    code = 7201
    cause = "The program has several instances, but nothing says where they meet."
    remedy = "Start the program with poprun, or set MASTER_ADDR and MASTER_PORT for all instances."


class RendezvousFailed(SoftIPUError):
    code = 7202
    cause = "Not all instances came to the meeting place in time."
    remedy = (
        "Look at the output of the instances that are missing. MASTER_ADDR and MASTER_PORT must "
        "name a free port of instance 0's host; SOFTIPU_INSTANCES_START is how long they wait."
    )


class InstanceLost(SoftIPUError):
    code = 7203
    cause = "An instance died, ended early or can't be reached any more; the others need it."
    remedy = (
        "Look at that instance's output and exit code (out of memory? killed?), then start all "
        "instances again, from the last checkpoint."
    )


class InstanceLate(SoftIPUError):
    code = 7204
    cause = "All instances live, but not all of them came to do the same thing together."
    remedy = (
        "Every instance must make the same training calls and the same collective calls in the "
        "same order. If one just has much to do between, raise SOFTIPU_INSTANCES_TIMEOUT."
    )


class InstancesDisagree(SoftIPUError):
    code = 7205
    cause = "Instances have to do the same thing together, with the same shapes, types and options."
    remedy = "Give all instances the same program, model, options and optimizer."


class NoGroup(SoftIPUError):
    code = 7206
    cause = "The connection of the instances was ended, or belongs to the parent of this process."
    remedy = "Use collectives between init and finalize only, and never in a data loader's worker."


class PopdistMisuse(SoftIPUError):
    code = 7207
    cause = "What the program asks of popdist isn't what poprun started."
    remedy = "Make the program's settings and poprun's options the same."


class HorovodMisuse(SoftIPUError):
    code = 7208
    cause = "The call isn't one that softipu's horovod has, or the order of calls is wrong."
    remedy = "Call hvd.init() first; docs/popdist.md lists what there is."
