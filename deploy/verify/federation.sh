# shellcheck shell=bash
# Sourced by deploy/verify.sh: a federation of containers, hardened as in production, and what befalls it.

image=dcfpca:verify
net=dcfpca-verify
# One name and address for the aggregator, wherever its container is and whether it runs: what a Service is in Kubernetes.
# The hardware address, too: neighbours go on sending to the old one for half a minute.
subnet=10.213.77.0/24 address=10.213.77.10 hardware=02:42:0a:d5:4d:0a
parties=(aggregator operator site-a site-b site-c)
# shellcheck disable=SC2034  # used by name in run_party
hardened=(--read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges --pids-limit 256 --memory 1g)

build_image() {
    printf '[global]\ncert = /run/secrets/ca.crt\n' >"$build/pip.conf"
    local args=(-f deploy/Dockerfile -t "$image" --build-arg "VERSION=$(version)"
        --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || true)")
    local ca=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    [ -e "$ca" ] && args+=(--secret "id=pip_conf,src=$build/pip.conf" --secret "id=ca_bundle,src=$ca")
    if [ "$builder" = docker ]; then
        docker build "${args[@]}" . >"$build/build.log" 2>&1
    else
        "${buildah[@]}" build --layers --isolation chroot --format docker --pull-never "${args[@]}" . \
            >"$build/build.log" 2>&1
    fi || { tail -20 "$build/build.log"; return 1; }
    state_size
}

version() { sed -n 's/^__version__ = "\(.*\)"/\1/p' dcfpca/version.py; }

state_size() {
    local whole base
    whole=$("${engine[@]}" image inspect --format '{{.Size}}' "$image")
    base=$("${engine[@]}" image inspect --format '{{.Size}}' "$base_image" 2>/dev/null || echo 0)
    echo "image: $((whole / 1000000)) MB, of which base $((base / 1000000)) MB and ours $(((whole - base) / 1000000)) MB"
}

clear_federation() {
    "${engine[@]}" rm --force --volumes "${parties[@]/#/v-}" v-elsewhere >/dev/null 2>&1 || true
    "${engine[@]}" volume rm --force v-ca v-elsewhere "${parties[@]/#/v-}" >/dev/null 2>&1 || true
    "${engine[@]}" network rm --force "$net" >/dev/null 2>&1 || true
}

one_shot() { # as the one-shot services of compose.yaml
    local mounts=(-v "$PWD/deploy/demo:/demo:ro" -v v-ca:/parties/ca) party
    for party in "${parties[@]}"; do mounts+=(-v "v-$party:/parties/$party"); done
    "${engine[@]}" run --rm --no-healthcheck --user 0:0 --network none --read-only --tmpfs /tmp --cap-drop all \
        --cap-add CHOWN --cap-add DAC_OVERRIDE "${mounts[@]}" "$@"
}

prepare() {
    clear_federation
    "${engine[@]}" network create --subnet "$subnet" "$net" >/dev/null
    one_shot "$image" sh /demo/certificates.sh >"$scratch/certificates.log" 2>&1 || { cat "$scratch/certificates.log"; return 1; }
    one_shot "$image" python /demo/data.py
}

run_party() { # NAME VOLUME ALIAS CONFIG COMMAND…
    local name=$1 volume=$2 alias=$3 config=$4 more=(--no-healthcheck --add-host "aggregator:$address")
    shift 4
    [ "$config" = aggregator ] && more=(--ip "$address" --mac-address "$hardware")
    "${engine[@]}" run --detach --name "v-$name" --network "$net" --network-alias "$alias" "${hardened[@]}" "${more[@]}" \
        -v "$volume:/var/lib/dcfpca" -v "$PWD/deploy/demo/$config.toml:/etc/dcfpca/$config.toml:ro" \
        -e "DCFPCA_CONFIG=/etc/dcfpca/$config.toml" "$image" "$@" >/dev/null
}

start_aggregator() { # [NAME VOLUME]
    run_party "${1:-aggregator}" "${2:-v-aggregator}" aggregator aggregator \
        dcfpca-aggregator serve --config /etc/dcfpca/aggregator.toml
    until_healthy "${1:-aggregator}"
}

until_healthy() { # asked as the engine's own timer would; podman has one only where systemd runs
    local check=(exec "v-$1" dcfpca-aggregator health --config /etc/dcfpca/aggregator.toml)
    [ "$builder" = docker ] || check=(healthcheck run "v-$1")
    for _ in $(seq 40); do
        "${engine[@]}" "${check[@]}" >/dev/null 2>&1 && return
        sleep 0.5
    done
    "${engine[@]}" logs "v-$1" | tail -5
    echo "v-$1 does not become healthy"
    return 1
}

become_healthy() {
    start_aggregator || return 1
    [ "$("${engine[@]}" exec v-aggregator id -u)" = 10001 ] || { echo "it runs as root"; return 1; }
    "${engine[@]}" exec v-aggregator grep -q '^CapEff:[[:space:]]*0*$' /proc/1/status || { echo "it has capabilities"; return 1; }
    if "${engine[@]}" exec v-aggregator touch /opt/dcfpca/x 2>/dev/null; then echo "its root can be written"; return 1; fi
}

start_sites() {
    local site
    for site in site-a site-b site-c; do
        run_party "$site" "v-$site" "$site" participant dcfpca-participant serve --config /etc/dcfpca/participant.toml
    done
    run_party operator v-operator operator operator sleep infinity
    for _ in $(seq 15); do
        [ "$(operator participants list --json | count_connected)" = 3 ] && return
        sleep 0.5
    done
    for site in site-a site-b site-c; do "${engine[@]}" logs "v-$site" 2>&1 | tail -3; done
    return 1
}

operator() { "${engine[@]}" exec v-operator dcfpca "$@"; }

count_connected() { python -c 'import json, sys; print(sum(p["state"] == "connected" for p in json.load(sys.stdin)))'; }

field() { python -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

finishes() { # RUN ROUNDS: it ends well, with every round once
    operator run watch "$1" --json >"$scratch/run.json" 2>"$scratch/watch.log" || { tail -3 "$scratch/watch.log"; return 1; }
    python - "$scratch/run.json" "$2" <<'PY'
import json, sys
run, wanted = json.load(open(sys.argv[1])), int(sys.argv[2])
rounds = [entry["round"] for entry in run["rounds"]]
assert run["status"] == "finished", run["status"]
assert len(rounds) == len(set(rounds)), f"a round stands twice: {rounds}"
assert wanted == 0 or max(rounds) == wanted, f"{max(rounds)} rounds, not {wanted}"
print(f"finished after {max(rounds)} rounds, rank {run['rounds'][-1]['rank']}")
PY
}

long_run() { # starts a run that goes on until ROUNDS and returns once ROUND is open
    run=$(operator run start --max-rank 10 --rounds "$1" --tolerance 0 --round-seconds 60 --json 2>/dev/null | field run_id) || return 1
    until_round "$run" "$2"
}

until_round() {
    local round
    for _ in $(seq 40); do
        round=$(operator run show "$1" --json 2>/dev/null | field round 2>/dev/null) && [ "$round" -ge "$2" ] && return
    done
    echo "round $2 of $1 is never reached"
    return 1
}

secure_run() {
    local run
    run=$(operator run start --max-rank 10 --json | field run_id) || return 1
    finishes "$run" 0 || return 1
    one_shot -v "$PWD/deploy/verify/score.py:/score.py:ro" -e "RUN=$run" "$image" python /score.py
}

restart_resumes() {
    long_run 400 20 || return 1
    "${engine[@]}" restart --time 30 v-aggregator >/dev/null
    until_healthy aggregator || return 1
    until_round "$run" 40 || return 1
    "${engine[@]}" kill --signal KILL v-aggregator >/dev/null
    "${engine[@]}" start v-aggregator >/dev/null
    until_healthy aggregator || return 1
    finishes "$run" 400
}

backup_continues() { # taken from the serving aggregator in the middle of a run; then it is lost, and restored elsewhere
    long_run 300 20 || return 1
    # A site that hangs holds the round open, so that no site gets ahead of the copy: sites do not go back to a round.
    "${engine[@]}" kill --signal STOP v-site-a >/dev/null
    "${engine[@]}" exec v-aggregator dcfpca-aggregator backup --config /etc/dcfpca/aggregator.toml \
        --out /var/lib/dcfpca/backup.db || return 1
    local before now
    before=$(operator run show "$run" --json | field round)
    "${engine[@]}" kill --signal KILL v-aggregator >/dev/null
    "${engine[@]}" kill --signal CONT v-site-a >/dev/null
    put_elsewhere || return 1
    start_aggregator elsewhere v-elsewhere || return 1
    now=$(operator run show "$run" --json | field round)
    echo "lost in round $before of 300, restored in round $now"
    finishes "$run" 300
}

put_elsewhere() { # the copy and the certificates, on another volume; nothing else of the lost aggregator
    "${engine[@]}" run --rm --no-healthcheck --user 0:0 --network none -v v-aggregator:/from:ro -v v-elsewhere:/to \
        "$image" sh -c 'mkdir /to/store && cp /from/backup.db /to/store/aggregator.db && cp -a /from/tls /to/ &&
            chown -R 10001:10001 /to' && "${engine[@]}" rm --force v-aggregator >/dev/null
}

drains() { # SIGTERM, as every platform stops a container; also in the middle of a run
    long_run 1000 5 || return 1
    local name code
    for name in "$@"; do
        "${engine[@]}" stop --time 30 "v-$name" >/dev/null
        code=$("${engine[@]}" inspect --format '{{.State.ExitCode}}' "v-$name")
        [ "$code" = 0 ] || { echo "v-$name exits $code"; "${engine[@]}" logs "v-$name" 2>&1 | tail -5; return 1; }
    done
}
