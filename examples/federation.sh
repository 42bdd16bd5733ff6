#!/usr/bin/env bash
# A federation on one machine, from certificates to each site's result: federation.sh [DIR]
# One aggregator and three sites as real services; everything is written below DIR, and they are stopped at the end.
set -euo pipefail
dir=${1:-$(mktemp -d /tmp/dcfpca-example.XXXXXX)}
sites=(site-a site-b site-c)
mkdir -p "$dir"
cd "$dir"

# 1. Certificates: one authority, one certificate for each. Between organizations, use `certs request` and `approve`.
dcfpca certs init --dir ca --consortium example
dcfpca certs issue --dir ca aggregator agg --host localhost --out agg
dcfpca certs issue --dir ca operator alice --out alice
for site in "${sites[@]}"; do
    dcfpca certs issue --dir ca participant "$site" --out "$site"
done

# 2. The aggregator. Port 0 takes any free one; the ready file says which.
cat >aggregator.toml <<TOML
[server]
listen = "127.0.0.1:0"
ca = "agg/ca.crt"
cert = "agg/agg.crt"
key = "agg/agg.key"
crl = "ca/crl.pem"

[store]
path = "store.db"

[telemetry]
ready_file = "ready"
metrics = ""

[dashboard]
listen = ""
TOML
rm -f ready
services=()
trap 'kill "${services[@]}" 2>/dev/null; wait' EXIT
dcfpca-aggregator serve --config aggregator.toml 2>aggregator.log &
services+=($!)
until [ -s ready ]; do
    kill -0 "${services[0]}" || { cat aggregator.log >&2; exit 1; }
    sleep 0.1
done
port=$(sed 's/.*://' ready)

# 3. The sites: 50 measurements of 80 cases each; what is normal is common to all, 5 % of the entries are grossly wrong.
for number in "${!sites[@]}"; do
    site=${sites[$number]}
    python3 - "$site/data.npy" "$number" <<'PY'
import sys

import numpy as np

common = np.random.default_rng(0).standard_normal((50, 4))
own = np.random.default_rng(int(sys.argv[2]) + 1)
data = common @ own.standard_normal((4, 80))
hit = own.random(data.shape) < 0.05
data[hit] += own.choice([-40.0, 40.0], hit.sum())
np.save(sys.argv[1], data)
PY
    cat >"$site/participant.toml" <<TOML
[aggregator]
address = "localhost:$port"

[identity]
ca = "ca.crt"
cert = "$site.crt"
key = "$site.key"

[data]
path = "data.npy"

[state]
dir = "state"

[results]
dir = "results"
TOML
    dcfpca-participant serve --config "$site/participant.toml" 2>"$site/log" &
    services+=($!)
done

# 4. The operator proposes a run to the three, and follows it to its end.
cat >operator.toml <<TOML
aggregator = "localhost:$port"
ca = "alice/ca.crt"
cert = "alice/alice.crt"
key = "alice/alice.key"
TOML
export DCFPCA_CONFIG=operator.toml
cat >spec.toml <<TOML
max_rank = 10
participants = ["site-a", "site-b", "site-c"]
TOML
dcfpca run start spec.toml --watch

# 5. Each site has its result; nobody else does.
for number in "${!sites[@]}"; do
    site=${sites[$number]}
    until compgen -G "$site/results/*/manifest.json" >/dev/null; do
        kill -0 "${services[$((number + 1))]}" || { cat "$site/log" >&2; exit 1; }
        sleep 0.1
    done
    dcfpca-participant results --config "$site/participant.toml"
done
