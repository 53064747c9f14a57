"""What serving and measuring a server report."""

from __future__ import annotations

from .base import SoftIPUError

# --- 61xx: serving ---------------------------------------------------------------------------


class ServerMissing(SoftIPUError):
    code = 6100
    cause = "The Triton server comes with the package nvidia-pytriton, which is not complete here."
    remedy = "pip install --no-deps nvidia-pytriton==0.7.0 (Linux with glibc 2.35 or later)."


class ServerDied(SoftIPUError):
    code = 6101
    cause = "The Triton server ended by itself; its last lines say why."
    remedy = "Correct what they name and start it again; --log-file keeps all lines."


class ServerNotReady(SoftIPUError):
    code = 6102
    cause = "The Triton server did not become ready in time: models load slowly, or it hangs."
    remedy = "Give more time with --startup-timeout, or look at its lines with --log-file."


class ServingSelfTestFailed(SoftIPUError):
    code = 6103
    cause = "Values that go through the server come back changed, so that no answer can be trusted."
    remedy = "Reinstall torch and nvidia-pytriton in the pinned versions, and report it."


class RepositoryInvalid(SoftIPUError):
    code = 6104
    cause = "A model repository is a directory of models: NAME/config.pbtxt, NAME/1/…"
    remedy = "Check the path, or make an entry with `softipu serve export`."


class ModelFileMissing(SoftIPUError):
    code = 6105
    cause = "A model is config.pbtxt, 1/name_map.json and 1/executable.popef."
    remedy = "Export the model again with `softipu serve export`."


class NameMapInvalid(SoftIPUError):
    code = 6106
    cause = "name_map.json maps each tensor name of the executable to a name in config.pbtxt."
    remedy = "Correct the file, or export the model again with `softipu serve export`."


class ConfigMismatch(SoftIPUError):
    code = 6107
    cause = "config.pbtxt promises what the executable does not take or give."
    remedy = "Correct config.pbtxt, or export the model again with `softipu serve export`."


class NotServable(SoftIPUError):
    code = 6108
    cause = "A server answers each request by itself, whatever else is in the batch."
    remedy = "Export an inference model whose inputs and outputs have the batch in front."


class NothingServed(SoftIPUError):
    code = 6109
    cause = "No model could be loaded, and --model-control-mode none loads none later."
    remedy = "Correct what the messages about the models name."


class RequestRefused(SoftIPUError):
    code = 6110
    cause = "The request does not fit the model's configuration."
    remedy = "Compare it with http://HOST:PORT/v2/models/NAME/config."


class ExportRefused(SoftIPUError):
    code = 6111
    cause = "The entry would not be one that the server can use, or would replace another."
    remedy = "Choose another name or directory, or remove the entry that is there."


class ModelControlFailed(SoftIPUError):
    code = 6112
    cause = "The Triton server refused to load or unload a model; the message is its own."
    remedy = "Correct what the message names and load the model again."


class ServerSilent(ModelControlFailed):
    code = 6113
    cause = "It has ended, or is too busy."
    remedy = "If it is still there, ask it again; `softipu serve` tells when it has ended."


# --- 6150–6199: measuring a server -----------------------------------------------------------


class ServedValuesWrong(SoftIPUError):
    code = 6150
    cause = "The server's answers are not those of the model, so that its speed means nothing."
    remedy = "Start it with `softipu serve`, whose self-test looks closer, and report it."


class BenchClientFailed(SoftIPUError):
    code = 6151
    cause = "The server refused what the clients sent, ended, or is too slow for their limit."
    remedy = "Correct what the message names; fewer or smaller requests make it faster."


class ReloadedValuesWrong(SoftIPUError):
    code = 6152
    cause = "An executable gives other values after it was written and read again."
    remedy = "Export the model again on this machine; if that does not help, report it."


class RequestsTooAlike(SoftIPUError):
    code = 6153
    cause = "Different images get almost the same scores, so that exchanged answers go unnoticed."
    remedy = "Use weights that tell images apart, or --precision 32.32."
