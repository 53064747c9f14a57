"""Turns what torch says about code it can't capture into an error that names the user's line."""

from __future__ import annotations

import contextlib
import linecache
import logging
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from softipu.errors import CaptureDataDependent, CaptureUnsupported

from .._errors import Error, failure
from .._weights import name_of

_LIBRARIES = (
    os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
)
#: Where the frames of a capture begin.
_TRACE = f"{__package__}.trace"
#: Where torch logs its own traceback of an operation that refuses its arguments, beside raising.
_FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")


class ShapeDependsOnValues(Error, DynamicOutputShapeException):
    """Also torch's own exception, which is what PopTorch lets through here."""


@contextlib.contextmanager
def explained(model: Any, options: Any) -> Iterator[None]:
    """Errors of the capture itself leave as poptorch.Error; the user's own exceptions pass."""
    name = name_of(model) + (".forward" if isinstance(model, torch.nn.Module) else "")

    def where(error: BaseException) -> str:
        return _users(reversed(traceback.extract_tb(error.__traceback__)), options)

    _FAKE_LOG.addFilter(_is_no_error)
    try:
        yield
    except DataDependentOutputException as error:
        raise failure(
            CaptureDataDependent,
            f"{name} needs the value of a tensor while it is captured{where(error)}.",
        ) from error
    except DynamicOutputShapeException as error:
        told = failure(
            CaptureDataDependent,
            f"{name} calls {_operator(error)}, whose output shape depends on values{where(error)}.",
        )
        told.__class__ = ShapeDependsOnValues
        raise told from error
    except TypeError as error:
        if "__format__" in str(error):  # of a number that isn't there yet: f"{loss:.3f}"
            raise failure(
                CaptureDataDependent,
                f"{name} needs the value of a tensor while it is captured{where(error)}.",
            ) from error
        # The user passed a torch.Tensor and never heard of fake ones.
        if "FakeTensor" not in str(error):
            raise
        raise TypeError(str(error).replace("FakeTensor", "Tensor")) from error
    except (UnsupportedOperatorException, NotImplementedError) as error:
        raise failure(
            CaptureUnsupported,
            f"{name} uses something that can't be captured: {error}{where(error)}.",
        ) from error
    finally:
        _FAKE_LOG.removeFilter(_is_no_error)


def _is_no_error(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR


def this_line(options: Any) -> str:
    """The line of the user's own code in `forward` that runs now, as text to append."""
    return _users(_frames(), options)


def _frames() -> Iterator[traceback.FrameSummary]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_run" and frame.f_globals.get("__name__") == _TRACE:
            return  # what called the model is not part of it
        yield traceback.FrameSummary(
            code.co_filename, frame.f_lineno, code.co_name, lookup_line=False
        )
        frame = frame.f_back


def _users(frames: Iterable[traceback.FrameSummary], options: Any) -> str:
    """The first line of the user's own code, as text to append; the options say what is not."""
    excludes = getattr(options, "_source_location_excludes", ())
    for frame in frames:
        if frame.filename.startswith(_LIBRARIES) or any(x in frame.filename for x in excludes):
            continue
        # Cells of a notebook are no files, but their lines are known.
        line = linecache.getline(frame.filename, frame.lineno or 0).strip()
        if line:
            return f", at {frame.filename}:{frame.lineno} in {frame.name}: `{line}`"
    return ""


def _operator(error: Exception) -> str:
    return str(error.args[0]) if error.args else type(error).__name__
