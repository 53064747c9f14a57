_softipu_enable() {
    local root
    root=$(_softipu_where) || return 1
    if [ ! -x "$root/bin/softipu" ]; then
        _softipu_complain "The Python environment that the SDK $root belongs to is gone." \
            "Install softipu again, then \`source \"\$(softipu sdk path)/enable\"\`."
        return 1
    fi
    if [ -n "${POPLAR_SDK_ENABLED:-}" ]; then
        _softipu_complain "A Poplar SDK has already been enabled." \
            "Path of enabled Poplar SDK: $POPLAR_SDK_ENABLED"
        printf '%s\n' "If this is not wanted then please start a new shell." >&2
        # The very same one does no harm; with another one, careful scripts should stop.
        [ "$POPLAR_SDK_ENABLED" = "$root" ]
        return
    fi
    _softipu_prepend CMAKE_PREFIX_PATH "$root"
    _softipu_prepend PATH "$root/bin"
    _softipu_prepend CPATH "$root/include"
    _softipu_prepend LIBRARY_PATH "$root/lib"
    _softipu_prepend LD_LIBRARY_PATH "$root/lib"
    _softipu_prepend PYTHONPATH "$root/lib/python"
    _softipu_prepend PYTHONPATH "$root/python"
    export POPLAR_SDK_ENABLED="$root"
}

