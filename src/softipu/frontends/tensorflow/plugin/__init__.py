"""Seen as tensorflow.compiler.plugin: the few names of the Poplar plug-in that programs import."""

from __future__ import annotations

from softipu.frontends.tensorflow import patches

patches.install()
