# shellcheck shell=bash
# Sourced by deploy/verify.sh: the federation of compose.yaml, brought up as a user would, and what befalls it.
# Nothing here depends on the machine's speed: a site that is stopped (SIGSTOP) holds a run open in its round, rounds
# have deadlines that are not reached, and what is awaited is an event, with a limit that only a fault reaches.

image=dcfpca:verify
project=dcfpca-verify-$here
sites=(site-a site-b site-c)
export DCFPCA_VERSION=verify DCFPCA_PORT=17443 DCFPCA_DASHBOARD_PORT=17480

build_image() {
    build_args
    timeout 400 "${builder[@]}" -f deploy/Dockerfile -t "$image" --build-arg "VERSION=$(version)" \
        --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || true)" "${secrets[@]}" . >"$build/build.log" 2>&1 ||
        { tail -20 "$build/build.log"; return 1; }
    state_size
}

version() { sed -n 's/^__version__ = "\(.*\)"/\1/p' dcfpca/version.py; }

state_size() {
    local whole base
    whole=$("${engine[@]}" image inspect --format '{{.Size}}' "$image")
    base=$("${engine[@]}" image inspect --format '{{.Size}}' "$base_image" 2>/dev/null || echo 0)
    echo "image: $((whole / 1000000)) MB, of which base $((base / 1000000)) MB and ours $(((whole - base) / 1000000)) MB"
}

composed() { timeout 200 "${compose[@]}" -p "$project" -f deploy/compose.yaml "$@"; }

container() { # SERVICE: its name, which every compose makes up in its own way
    [ "$1" = elsewhere ] && echo "$project-elsewhere" && return
    "${engine[@]}" ps --all --filter "label=com.docker.compose.project=$project" \
        --filter "label=com.docker.compose.service=$1" --format '{{.Names}}' | head -1
}

inside() { # SERVICE COMMAND…
    local name
    name=$(container "$1")
    shift
    timeout 60 "${engine[@]}" exec "$name" "$@"
}

operator() { timeout "${limit:-60}" "${engine[@]}" exec "$project-operator" dcfpca "$@"; }

await() { # WHAT COMMAND…: until the command succeeds, for two minutes at most
    local what=$1 ends=$((SECONDS + 120))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $ends ] || { echo "not within 120 s: $what"; tell_logs; return 1; }
        sleep 0.2
    done
}

tell_logs() {
    local service
    for service in aggregator "${sites[@]}"; do
        "${engine[@]}" logs --tail 3 "$(container $service)" 2>&1 | sed "s/^/$service: /" | cut -c1-300
    done
}

clear_federation() {
    "${engine[@]}" rm --force "$project-elsewhere" >/dev/null 2>&1 || true
    "${engine[@]}" rm --force "$project-operator" >/dev/null 2>&1 || true
    composed down --volumes --timeout 5 >/dev/null 2>&1 || true
    "${engine[@]}" volume rm --force "$project-elsewhere" >/dev/null 2>&1 || true
    # Containers that were killed with all that watched over them leave their names to podman's DNS, under a network that
    # is gone: one of the same name would be answered for at the old one's address.
    is_docker || rm -f "/run/containers/networks/aardvark-dns/${project}_federation"
}

compose_up() {
    clear_federation
    composed up -d >"$build/up.log" 2>&1 || { tail -10 "$build/up.log"; return 1; }
    composed --profile operator run -d --name "$project-operator" operator sleep infinity >>"$build/up.log" 2>&1 ||
        { tail -10 "$build/up.log"; return 1; }
    is_docker || keep_bridge || return 1
    one_shots_ended && await "the aggregator becomes healthy" is_healthy aggregator && await "three participants connect" all_connected
}

keep_bridge() { # at the address it has
    # Podman leaves it to the kernel, which gives the bridge the lowest of its ports' addresses. That changes as containers
    # come and go, and until their ARP notices (most of a minute) the others ask for names where nobody is.
    local bridge
    bridge=$("${engine[@]}" network inspect --format '{{.NetworkInterface}}' "${project}_federation") &&
        ip link set dev "$bridge" address "$(cat "/sys/class/net/$bridge/address")"
}

one_shots_ended() { # well
    local service
    for service in certificates data; do
        [ "$("${engine[@]}" wait "$(container $service)")" = 0 ] ||
            { echo "$service:"; "${engine[@]}" logs --tail 5 "$(container $service)" 2>&1; return 1; }
    done
}

is_healthy() { # asked as the engine's own timer would; podman has one only where systemd runs
    if is_docker; then
        inside "$1" dcfpca-aggregator health --config /etc/dcfpca/aggregator.toml
    else
        timeout 60 "${engine[@]}" healthcheck run "$(container "$1")"
    fi
}

all_connected() { [ "$(operator participants list --json | count_connected)" = 3 ]; }

count_connected() { python -c 'import json, sys; print(sum(p["state"] == "connected" for p in json.load(sys.stdin)))'; }

field() { python -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

is_hardened() {
    local service
    for service in aggregator "${sites[@]}"; do
        [ "$(inside $service id -u)" = 10001 ] || { echo "$service runs as root"; return 1; }
        inside $service grep -q '^CapEff:[[:space:]]*0*$' /proc/1/status || { echo "$service has capabilities"; return 1; }
        inside $service grep -q '^NoNewPrivs:[[:space:]]*1$' /proc/1/status || { echo "$service may gain privileges"; return 1; }
        if inside $service touch /opt/dcfpca/x 2>/dev/null; then echo "the root of $service can be written"; return 1; fi
    done
}

secure_run() { # with the very commands at the head of compose.yaml
    local run
    run=$(composed --profile operator run --rm operator dcfpca run start --max-rank 10 --json 2>"$scratch/run.log" | field run_id) ||
        { tail -5 "$scratch/run.log"; return 1; }
    finishes "$run" 0 || return 1
    composed run --rm -v "$PWD/deploy/verify/score.py:/score.py:ro" -e "RUN=$run" data python /score.py 2>"$scratch/run.log" ||
        { tail -5 "$scratch/run.log"; return 1; }
}

finishes() { # RUN ROUNDS: it ends well, with every round once
    limit=180 operator run watch "$1" --json >"$scratch/run.json" 2>"$scratch/watch.log" ||
        { tell_logs; operator run show "$1" --json | field reason; tail -3 "$scratch/watch.log"; return 1; }
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

long_run() { # ROUNDS: starts a run that goes on until then, and returns once it is under way
    run=$(operator run start --max-rank 10 --rounds "$1" --tolerance 0 --round-seconds 1200 \
        --set closing_rounds=false --set scaling=none --json 2>/dev/null | field run_id) || return 1
    await "round 3 of $run" is_past 3
}

is_past() { [ "$(round_of_run)" -ge "$1" ]; }

round_of_run() { operator run show "$run" --json | field round; }

hold() { # the run stays in its round for as long as this site is stopped; sets held to that round
    "${engine[@]}" kill --signal STOP "$(container site-a)" >/dev/null || return 1
    held=$(round_of_run)
    [ "$(operator run show "$run" --json | field status)" = running ] || { echo "the run ended too soon to be disturbed"; return 1; }
}

release() { "${engine[@]}" kill --signal CONT "$(container site-a)" >/dev/null; }

restart_resumes() {
    local name
    name=$(container aggregator)
    long_run 400 && hold || return 1
    "${engine[@]}" restart --time 30 "$name" >/dev/null
    release && await "healthy after the restart" is_healthy aggregator && await "the run goes on" is_past $((held + 2)) || return 1
    echo "restarted in round $held"
    hold || return 1
    "${engine[@]}" kill --signal KILL "$name" >/dev/null
    "${engine[@]}" start "$name" >/dev/null
    release && await "healthy after kill -9" is_healthy aggregator || return 1
    echo "killed in round $held"
    finishes "$run" 400
}

is_paused() { [ "$(operator run show "$run" --json | field status)" = paused ]; }

is_decided() { is_paused || [ "$(operator run show "$run" --json | field status)" = finished ]; }

backup_is_taken_up() { # taken from the serving aggregator in the middle of a run; then it is lost, and restored elsewhere
    long_run 400 && hold || return 1
    local copied=$held
    inside aggregator dcfpca-aggregator backup --config /etc/dcfpca/aggregator.toml --out /var/lib/dcfpca/backup.db || return 1
    release && await "the run goes on after the backup" is_past $((copied + 3)) && hold || return 1
    "${engine[@]}" kill --signal KILL "$(container aggregator)" >/dev/null
    put_elsewhere && release && start_elsewhere || return 1
    # Its sites have answered rounds that the copy does not know, and answer none of them twice. They bring the run forward;
    # it pauses only if the site that was stopped had not heard of the last round yet.
    await "the run is brought forward by its sites, or pauses" is_decided || return 1
    echo "copied in round $copied, lost in round $held, restored elsewhere"
    if is_paused; then
        echo "paused: a site had not heard of round $held"
        operator run finish "$run" --reason "restored from a backup" >/dev/null || return 1
    fi
    finishes "$run" 0
}

volume() { "${engine[@]}" inspect --format '{{range .Mounts}}{{if eq .Destination "/var/lib/dcfpca"}}{{.Name}}{{end}}{{end}}' "$(container "$1")"; }

put_elsewhere() { # the copy and the certificates, on another volume; nothing else of the lost aggregator
    "${engine[@]}" run --rm --no-healthcheck --user 0:0 --network none -v "$(volume aggregator):/from:ro" \
        -v "$project-elsewhere:/to" "$image" sh -c 'mkdir /to/store && cp /from/backup.db /to/store/aggregator.db &&
            cp -a /from/tls /to/ && chown -R 10001:10001 /to'
}

start_elsewhere() { # another container, volume and address; the name now leads there
    local net
    net=$("${engine[@]}" inspect --format '{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}' "$(container site-a)")
    "${engine[@]}" rm --force "$(container aggregator)" >/dev/null
    "${engine[@]}" run --detach --name "$project-elsewhere" --network "${net%% *}" --network-alias aggregator "${hardened[@]}" \
        -v "$project-elsewhere:/var/lib/dcfpca" -v "$PWD/deploy/demo/aggregator.toml:/etc/dcfpca/aggregator.toml:ro" "$image" >/dev/null
    await "healthy elsewhere" is_healthy elsewhere
}

drains() { # SIGTERM, as every platform stops a container; also in the middle of a run
    long_run 1000 || return 1
    local service name code
    for service in elsewhere "${sites[@]}"; do
        name=$(container "$service")
        "${engine[@]}" stop --time 30 "$name" >/dev/null
        code=$("${engine[@]}" inspect --format '{{.State.ExitCode}}' "$name")
        [ "$code" = 0 ] || { echo "$service exits $code"; "${engine[@]}" logs --tail 5 "$name" 2>&1; return 1; }
    done
}
