#!/usr/bin/env bash
# Builds the image of the repository that this script is in.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=docker/engine.sh
. "$here/engine.sh"

usage() {
    cat <<END
usage: build_docker.sh [--echo | --help] [OPTIONS of docker build...]

Variables:
  IPU_IMAGE_NAME  name of the image (now: $IPU_IMAGE_NAME)
  IPU_ENGINE      docker or podman (default: docker if there is one)
  BASE_IMAGE      the system below it; pin it by a dated tag or a digest
  EXTRAS          front ends and tools, for example torch (default: all)
  APT_PACKAGES    more system packages, for example "g++ python3-dev"
  PIP_CONF        file with pip's settings for the build alone: index, proxy, certificates
END
}

echo_only=
case ${1:-} in
-h | --help)
    usage
    exit 0
    ;;
--echo)
    echo_only=1
    shift
    ;;
esac

find_engine
command=("$IPU_ENGINE" build --tag "$IPU_IMAGE_NAME" --file "$here/Dockerfile")
# Without it, podman makes an image that cannot have a health check.
[ "$(basename "$IPU_ENGINE")" != podman ] || command+=(--format docker)
for name in BASE_IMAGE EXTRAS APT_PACKAGES; do
    [ -z "${!name:-}" ] || command+=(--build-arg "$name=${!name}")
done
if [ -n "${PIP_CONF:-}" ]; then
    [ -r "$PIP_CONF" ] || fail "PIP_CONF=$PIP_CONF cannot be read."
    command+=(--secret "id=pip.conf,src=$PIP_CONF")
fi
command+=("$@" "$(dirname "$here")")

if [ -n "$echo_only" ]; then
    printf '%q ' "${command[@]}"
    echo
    exit 0
fi
check_engine
exec "${command[@]}"
