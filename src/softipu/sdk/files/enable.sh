# Poplar, then PopART. Each file takes its helpers away when it is done, so they are not used here.
_softipu_enable() {
    local root
    root=$(_softipu_where) || return 1
    set -- "$root"/poplar-*/enable.sh "$root"/popart-*/enable.sh
    # shellcheck disable=SC1090  # which files these are is known when the SDK is written
    . "$1" && . "$2"
}

