# shellcheck shell=bash
# Sourced by build_docker.sh and into_docker.sh: names, and questions to the engine with an end.

IPU_IMAGE_NAME=${IPU_IMAGE_NAME:-softipu:latest}
# shellcheck disable=SC2034  # into_docker.sh's
IPU_CONTAINER_NAME=${IPU_CONTAINER_NAME:-softipu}

fail() {
    echo "$(basename "$0"): $1" >&2
    [ "$#" -lt 2 ] || echo "  $2" >&2
    exit 1
}

# docker if there is one, else podman, unless IPU_ENGINE says which.
find_engine() {
    if [ -z "${IPU_ENGINE:-}" ]; then
        if command -v docker >/dev/null; then IPU_ENGINE=docker; else IPU_ENGINE=podman; fi
    fi
    command -v "$IPU_ENGINE" >/dev/null ||
        fail "there is no program $IPU_ENGINE in PATH." "Install docker or podman, or set IPU_ENGINE."
}

# What an engine has to say within 30 seconds; a daemon that hangs must not hang the user.
ask() {
    timeout --kill-after=2 "${IPU_ENGINE_TIMEOUT:-30}" "$IPU_ENGINE" "$@"
}

check_engine() {
    local complaint
    complaint=$(ask version 2>&1 >/dev/null) ||
        fail "$IPU_ENGINE does not work: $(tail -n 1 <<<"${complaint:-it gave no answer in time.}")" \
            "Is its daemon running, and may you talk to it?"
}

check_image() {
    ask image inspect "$IPU_IMAGE_NAME" >/dev/null 2>&1 ||
        fail "there is no image $IPU_IMAGE_NAME here." "docker/build_docker.sh builds it; IPU_IMAGE_NAME names another."
}
