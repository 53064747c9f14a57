# shellcheck shell=bash
# Sourced by build_docker.sh and into_docker.sh: names, and questions to the engine with an end.

IMAGE_NAME=${IMAGE_NAME:-softipu:latest}
# shellcheck disable=SC2034  # into_docker.sh's
CONTAINER_NAME=${CONTAINER_NAME:-softipu}

fail() {
    echo "$(basename "$0"): $1" >&2
    [ "$#" -lt 2 ] || echo "  $2" >&2
    exit 1
}

# docker if there is one, else podman, unless ENGINE says which.
find_engine() {
    if [ -z "${ENGINE:-}" ]; then
        if command -v docker >/dev/null; then ENGINE=docker; else ENGINE=podman; fi
    fi
    command -v "$ENGINE" >/dev/null ||
        fail "there is no program $ENGINE in PATH." "Install docker or podman, or set ENGINE."
}

# What an engine has to say within 30 seconds; a daemon that hangs must not hang the user.
ask() {
    timeout --kill-after=2 "${ENGINE_TIMEOUT:-30}" "$ENGINE" "$@"
}

check_engine() {
    local complaint
    complaint=$(ask version 2>&1 >/dev/null) ||
        fail "$ENGINE does not work: $(tail -n 1 <<<"${complaint:-it gave no answer in time.}")" \
            "Is its daemon running, and may you talk to it?"
}

check_image() {
    ask image inspect "$IMAGE_NAME" >/dev/null 2>&1 ||
        fail "there is no image $IMAGE_NAME here." "docker/build_docker.sh builds it; IMAGE_NAME names another."
}
