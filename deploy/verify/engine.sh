# shellcheck shell=bash
# Sourced by deploy/verify.sh: the container engine, its base image, and whether this machine lets it work at all.
# Sets engine (docker, or podman with its storage), builder, and compose: arrays; engine is empty where there is none.

base_image=docker.io/library/python:3.11-slim-bookworm
# shellcheck disable=SC2034  # used by those who source this
hardened=(--read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges --pids-limit 256 --memory 1g)

choose_engine() {
    engine=() builder=() compose=()
    if have docker && docker info >/dev/null 2>&1; then
        engine=(docker) builder=(docker build)
        if docker compose version >/dev/null 2>&1; then compose=(docker compose); fi
    elif have buildah && have podman && [ "$(id -u)" = 0 ]; then
        write_containers_conf
        # Images stay below build/, so that the next build finds its layers. What runs needs a short path, always the same.
        local storage
        storage=(--root "$build/storage" --runroot "/tmp/dcfpca-$here" --storage-driver "${STORAGE_DRIVER:-overlay}")
        engine=(podman "${storage[@]}")
        builder=(buildah "${storage[@]}" build --layers --isolation chroot --format docker --pull-never)
        if have podman-compose; then
            write_podman
            compose=(podman-compose --podman-path "$build/bin/podman-here")
        fi
    fi
}

is_docker() { [ "${engine[0]}" = docker ]; }

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

write_podman() { # podman as podman-compose is to call it
    mkdir -p "$build/bin"
    cat >"$build/bin/podman-here" <<SH
#!/bin/sh
# "Requires" means running to podman, and one-shot services have ended; podman-compose itself waits for their end.
for given; do
    shift
    case \$given in --requires=*) ;; *) set -- "\$@" "\$given" ;; esac
done
exec ${engine[*]} "\$@"
SH
    chmod +x "$build/bin/podman-here"
}

get_base() { # the image that FROM names: pulled where there is a registry, else a stand-in made from Debian's packages
    "${engine[@]}" image inspect "$base_image" >/dev/null 2>&1 && return
    timeout 120 "${engine[@]}" pull --quiet "$base_image" >/dev/null 2>&1 && return
    ! is_docker && have mmdebstrap || return 1
    if [ ! -e "$build/base.tar" ]; then
        # shellcheck disable=SC2016  # the hooks' own "$1"
        timeout 240 mmdebstrap --quiet --mode=root --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates \
            --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
            --dpkgopt='path-exclude=/usr/share/man/*' --customize-hook='ln -s python3 "$1/usr/bin/python"' \
            --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED' bookworm "$build/base.partial.tar" \
            >"$build/mmdebstrap.log" 2>&1 || return 1
        mv "$build/base.partial.tar" "$build/base.tar"
    fi
    "${engine[@]}" import --quiet "$build/base.tar" "$base_image" >/dev/null || return 1
    echo "base image: a stand-in from Debian's packages, for no image registry can be reached; it proves our steps only"
}

build_args() { # sets secrets: an index or CA of this machine, which builds may use and images do not keep
    secrets=()
    local ca=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    printf '[global]\ncert = /run/secrets/ca.crt\n' >"$build/pip.conf"
    if [ -e "$ca" ]; then secrets=(--secret "id=pip_conf,src=$build/pip.conf" --secret "id=ca_bundle,src=$ca"); fi
}

can_build() { # an image of the base, with the Python index in reach: what depends on this machine, not on us
    local probe=$scratch/probe
    mkdir -p "$probe"
    build_args
    cat >"$probe/Dockerfile" <<PROBE
FROM python:3.11-slim-bookworm
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf --mount=type=secret,id=ca_bundle,target=/run/secrets/ca.crt \
    python -m pip download --quiet --no-cache-dir --no-deps --only-binary :all: --dest /tmp mdurl
PROBE
    timeout 120 "${builder[@]}" --no-cache -t dcfpca-probe:verify "${secrets[@]}" "$probe" >"$build/probe.log" 2>&1
}

can_run() { # hardened containers that find one another by name
    local net=dcfpca-probe-$here answer
    drop_probe $net
    "${engine[@]}" network create $net >"$build/probe.log" 2>&1 &&
        timeout 60 "${engine[@]}" run --detach --name $net-server --network $net --network-alias server "${hardened[@]}" \
            "$base_image" python -m http.server --directory /tmp 8000 >>"$build/probe.log" 2>&1 &&
        timeout 60 "${engine[@]}" run --rm --network $net "${hardened[@]}" "$base_image" python -c "$(probe_client)" \
            >>"$build/probe.log" 2>&1
    answer=$?
    drop_probe $net
    return $answer
}

probe_client() {
    cat <<'PY'
import sys, time, urllib.request
for _ in range(50):
    try:
        sys.exit(urllib.request.urlopen("http://server:8000/", timeout=2).status != 200)
    except OSError as error:
        last = error
        time.sleep(0.2)
sys.exit(f"containers do not find one another: {last}")
PY
}

drop_probe() { # NETWORK
    "${engine[@]}" rm --force "$1-server" >/dev/null 2>&1 || true
    "${engine[@]}" network rm --force "$1" >/dev/null 2>&1 || true
}

why() { tail -1 "$build/probe.log" | cut -c1-160; }
