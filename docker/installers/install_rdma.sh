#!/usr/bin/env bash
# RDMA libraries in a container. Real IPU-Machines are reached over RDMA, so their containers need
# the host's version of these libraries. A software IPU is reached through a directory: it needs
# none, and without --install this script installs none. Other programs may want them: NCCL and MPI
# use InfiniBand between hosts when they find it.
set -euo pipefail

usage() {
    cat <<END
usage: install_rdma.sh [--check | --install | --help]

  --check    say what is there (the default); changes nothing
  --install  install the system's RDMA libraries with apt, for NCCL or MPI; as root
END
}

packages=(ibverbs-providers libibverbs1 librdmacm1 rdma-core)

check() {
    echo "A software IPU needs no RDMA: nothing has to be installed for it."
    local library
    for library in libibverbs.so.1 librdmacm.so.1; do
        if ldconfig -p 2>/dev/null | grep -q "$library"; then
            echo "$library: installed"
        else
            echo "$library: not installed (install_rdma.sh --install)"
        fi
    done
    if [ -d /dev/infiniband ]; then
        echo "/dev/infiniband: passed to this container"
    else
        echo "/dev/infiniband: not here (docker run --device=/dev/infiniband passes it)"
    fi
}

install() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "install_rdma.sh: only root can install packages." >&2
        exit 1
    fi
    if ! command -v apt-get >/dev/null; then
        echo "install_rdma.sh: there is no apt-get here; install ${packages[*]} by other means." >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
    rm -rf /var/lib/apt/lists/*
}

if [ "$#" -gt 1 ]; then
    usage >&2
    exit 2
fi
case ${1:---check} in
--check) check ;;
--install) install ;;
-h | --help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
