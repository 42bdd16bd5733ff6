#!/usr/bin/env bash
# Proves the deployment by doing it: lints every file, builds the image, runs a hardened federation of containers,
# restarts, backs up and restores it in the middle of runs, and installs the wheel in an empty environment.
#
#   deploy/verify.sh [lint|dist|image|release]…   default: the first three; KEEP=1 leaves the federation running
#
# `release` fills dist/: wheel, sdist, SBOM, site, image, notes, checksums; and tries the wheel with each extra on each Python.
#
# What cannot be had here is skipped, and said. Everything is written below build/, which the next time makes it faster.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
scratch=$(mktemp -d /tmp/dcfpca.XXXXXX)
mkdir -p build/deploy
# shellcheck source=deploy/verify/tools.sh
. deploy/verify/tools.sh
# shellcheck source=deploy/verify/lint.sh
. deploy/verify/lint.sh
# shellcheck source=deploy/verify/engine.sh
. deploy/verify/engine.sh
# shellcheck source=deploy/verify/federation.sh
. deploy/verify/federation.sh
# shellcheck source=deploy/verify/dist.sh
. deploy/verify/dist.sh
# shellcheck source=deploy/verify/release.sh
. deploy/verify/release.sh

failed=() skipped=()
# What has not begun by then is skipped, so that a slow machine only says less.
budget=${VERIFY_SECONDS:-1500}

step() { # WHAT COMMAND…
    local what=$1 began=$SECONDS
    shift
    [ "$began" -lt "$budget" ] || { skip "$what" "the time is up ($budget s)"; return 1; }
    if "$@" >"$scratch/step.log" 2>&1; then
        echo "ok      $what ($((SECONDS - began)) s)"
        # Without systemd podman says at every start that it will not ask for health by itself; we ask.
        sed '/systemd connection/d; /syslog/d; s/^/        /' "$scratch/step.log" | tail -3
    else
        echo "FAILED  $what ($((SECONDS - began)) s)"
        tail -20 "$scratch/step.log" | sed 's/^/        /'
        failed+=("$what")
        return 1
    fi
}

fetching_step() { # WHAT COMMAND…: a step that fetches from the Python index; what that does not give is not our failure
    local gone='No matching distribution|Could not find a version|new connection|name resolution|Read timed out'
    step "$@" && return
    grep -qE "$gone" "$scratch/step.log" || return 1
    unset 'failed[-1]'
    skip "$1" "the Python index does not give what it needs"
    return 1
}

skip() {
    echo "skipped $1: $2"
    skipped+=("$1")
}

with() { # TOOL WHAT COMMAND…: a step that needs a tool
    local tool=$1
    shift
    if have "$tool"; then step "$@"; else skip "$1" "there is no $tool"; fi
}

verify_dist() {
    have pyproject-build || { skip "what is released" "there is no pyproject-build"; return; }
    fetching_step "sdist and wheel" make_dist &&
        fetching_step "wheel in an empty environment runs the demo" wheel_runs_demo &&
        with cyclonedx-py "SBOM of the wheel and all it needs" make_sbom
}

verify_lint() {
    get_helm
    with hadolint "Dockerfile by hadolint" lint_dockerfile
    step "whether the base image is named by digest" lint_base
    with shellcheck "scripts by shellcheck" lint_scripts
    with check-jsonschema "compose.yaml by the compose schema" lint_compose
    with check-jsonschema "CI files by the schemas of GitHub and GitLab" lint_ci
    with systemd-analyze "units by systemd-analyze" lint_units
    if have helm && have kubernetes-validate; then
        step "charts by helm lint, helm template and kubernetes-validate --strict" lint_charts
        with .venv/bin/python "configs in the charts by the services' own models" lint_chart_configs
        step "values schema refuses what would not work, and names it" lint_values
    else
        skip "charts" "there is no helm or no kubernetes-validate"
    fi
}

verify_image() {
    local whole="image and containers"
    choose_engine
    [ ${#engine[@]} -gt 0 ] || { skip "$whole" "there is neither a docker engine nor buildah and podman for root"; return; }
    get_base || { skip "$whole" "the base image can neither be pulled nor made"; return; }
    can_build || { skip "$whole" "images cannot be built here: $(why)"; return; }
    fetching_step "image builds" build_image || return
    [ ${#compose[@]} -gt 0 ] || { skip "containers" "there is neither docker compose nor podman-compose"; return; }
    can_run || { skip "containers" "they cannot run here: $(why)"; return; }
    verify_federation
    [ -n "${KEEP:-}" ] || clear_federation
}

verify_federation() {
    step "compose up: certificates, data, a healthy aggregator, three participants that connect" compose_up &&
        step "all four: read-only root, user 10001, no capabilities, no new privileges" is_hardened &&
        step "secure run by the operator's container" secure_run &&
        step "restart and kill -9 of the aggregator's container in the middle of a run: it goes on" restart_resumes &&
        step "backup taken during a run and restored elsewhere: its sites bring the run forward, and it finishes" backup_is_taken_up &&
        step "SIGTERM in the middle of a run drains, exit 0" drains
}

get_ready() { # what takes long to fetch, while other things are done
    get_packages buildah podman runc ip mmdebstrap systemd-analyze -- \
        buildah podman runc conmon netavark aardvark-dns catatonit iproute2 iptables mmdebstrap systemd
    choose_engine
    [ ${#engine[@]} = 0 ] || get_base
}

[ $# -gt 0 ] || set -- dist lint image
get_ready >"$build/ready.log" 2>&1 &
get_linters
for part in "$@"; do
    [ "$part" = dist ] || wait
    "verify_$part"
done
wait
echo "deploy: ${#failed[@]} failed, ${#skipped[@]} skipped, $SECONDS s"
rm -rf "$scratch"
[ ${#failed[@]} = 0 ]
