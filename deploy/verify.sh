#!/usr/bin/env bash
# Proves the deployment by doing it: lints every file, builds the image, runs a hardened federation of containers,
# restarts, backs up and restores it in the middle of runs, and installs the wheel in an empty environment.
#
#   deploy/verify.sh [lint|dist|image]…      default: all three
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
# shellcheck source=deploy/verify/federation.sh
. deploy/verify/federation.sh
# shellcheck source=deploy/verify/dist.sh
. deploy/verify/dist.sh

failed=() skipped=()

step() { # WHAT COMMAND…
    local what=$1 began=$SECONDS
    shift
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

skip() {
    echo "skipped $1: $2"
    skipped+=("$1")
}

with() { # TOOL WHAT COMMAND…: a step that needs a tool
    local tool=$1
    shift
    if have "$tool"; then step "$@"; else skip "$1" "there is no $tool"; fi
}

verify_lint() {
    with hadolint "Dockerfile by hadolint" lint_dockerfile
    with shellcheck "scripts by shellcheck" lint_scripts
    with check-jsonschema "compose.yaml by the compose schema" lint_compose
    with systemd-analyze "units by systemd-analyze" lint_units
    if have helm && have kubernetes-validate; then
        step "charts by helm lint, helm template and kubernetes-validate --strict" lint_charts
        with .venv/bin/python "configs in the charts by the services' own models" lint_chart_configs
        step "values schema refuses what would not work" lint_values
    else
        skip "charts" "there is no helm or no kubernetes-validate"
    fi
}

verify_dist() {
    with pyproject-build "sdist and wheel" make_dist
    step "wheel in an empty environment runs the demo" wheel_runs_demo
    with cyclonedx-py "SBOM of the wheel and all it needs" make_sbom
}

verify_image() {
    get_packages
    choose_engine
    if [ ${#engine[@]} = 0 ]; then
        skip "image and containers" "there is neither a docker engine nor buildah and podman for root"
        return
    fi
    get_base || { skip "image and containers" "the base image can neither be pulled nor made"; return; }
    step "image builds" build_image &&
        step "certificates and data by the one-shot services" prepare &&
        step "aggregator becomes healthy: read-only, user 10001, no capabilities" become_healthy &&
        step "three participants connect" start_sites &&
        step "secure run" secure_run &&
        step "restart and kill -9 of the container: the run goes on" restart_resumes &&
        step "backup taken during a run and restored elsewhere continues that run" backup_continues &&
        step "SIGTERM in the middle of a run drains, exit 0" drains elsewhere site-a site-b site-c
    [ -n "${KEEP:-}" ] || clear_federation
}

get_linters
[ $# -gt 0 ] || set -- lint dist image
for part in "$@"; do
    "verify_$part"
done
echo "deploy: ${#failed[@]} failed, ${#skipped[@]} skipped, $SECONDS s"
rm -rf "$scratch"
[ ${#failed[@]} = 0 ]
