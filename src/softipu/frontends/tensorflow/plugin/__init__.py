"""Seen as tensorflow.compiler.plugin: the few names of the Poplar plug-in that programs import."""
