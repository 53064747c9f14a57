# Puts a folder before a list such as PATH: once, and only if there is such a folder. Nothing is
# added to an empty list but the folder: an empty entry would mean the working directory.
_softipu_prepend() {
    [ -d "$2" ] || return 0
    eval "case \":\${$1:-}:\" in *\":\$2:\"*) return 0 ;; esac"
    eval "export $1=\"\$2\${$1:+:\$$1}\""
}

