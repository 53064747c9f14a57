"""Part of tensorflow.compiler.plugin.poplar that programs import."""
