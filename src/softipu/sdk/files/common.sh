# shellcheck shell=bash
# Sourced, not run, in bash or zsh: `source FILE`. Written by `softipu sdk`.

_softipu_complain() {
    printf 'ERROR: %s\n' "$1" >&2
    [ "$#" -lt 2 ] || printf '%s\n' "$2" >&2
}

# Prints the directory of this file, if it was sourced and stands where `softipu sdk` put it.
_softipu_where() {
    # How a shell names the file that it reads; others than these two do not tell.
    if [ -n "${BASH_VERSION:-}" ]; then
        # shellcheck disable=SC2128  # its first entry is meant, in a form that dash can read too
        set -- "${BASH_SOURCE:-}" "$0"
    elif [ -n "${ZSH_VERSION:-}" ]; then
        case ":$ZSH_EVAL_CONTEXT:" in
        *:file:*) eval 'set -- "${(%):-%x}" ""' ;;
        *) set -- "" "" ;;
        esac
    else
        _softipu_complain "This file is for bash and zsh, and this is another shell." \
            "Start bash or zsh, and source it there."
        return 1
    fi
    if [ ! -f "$1" ] || [ "$1" = "$2" ]; then
        _softipu_complain "This file was run, which cannot change your shell." \
            "Use \`source FILE\` instead."
        return 1
    fi
    set -- "$(dirname -- "$(readlink -f -- "$1")")"
    if [ ! -f "$1/softipu" ]; then
        _softipu_complain "$1 is no part of an SDK of softipu's: this file was copied or moved alone." \
            "Use \`source \"\$(softipu sdk path)/enable\"\` instead."
        return 1
    fi
    printf '%s\n' "$1"
}

