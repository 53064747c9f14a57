_softipu_enable() {
    local root
    root=$(_softipu_where) || return 1
    _softipu_prepend CMAKE_PREFIX_PATH "$root"
    _softipu_prepend CPATH "$root/include"
    _softipu_prepend LIBRARY_PATH "$root/lib"
    _softipu_prepend LD_LIBRARY_PATH "$root/lib"
    _softipu_prepend PYTHONPATH "$root/python"
}

