# shellcheck shell=bash
# Sourced by deploy/verify.sh: everything that can be judged without running it.

lint_dockerfile() { hadolint deploy/Dockerfile; }

lint_scripts() { shellcheck -x deploy/verify.sh deploy/demo/*.sh certs/*.sh; } # with all that it sources

lint_compose() { check-jsonschema --quiet --builtin-schema vendor.compose-spec deploy/compose.yaml; }

lint_units() { # systemd itself reads them, as if the software were installed where they expect it
    local root=$scratch/units
    mkdir -p "$root/opt/dcfpca/bin" "$root/etc/systemd/system" "$root/usr/lib"
    for command in dcfpca-aggregator dcfpca-participant; do
        install -m 0755 /dev/null "$root/opt/dcfpca/bin/$command"
    done
    cp deploy/systemd/*.service "$root/etc/systemd/system/"
    for unit in deploy/systemd/*.service; do
        local said
        said=$(systemd-analyze verify --man=no --recursive-errors=no --root="$root" "$(basename "$unit")" 2>&1 || true)
        if grep -F "$(basename "$unit")" <<<"$said"; then return 1; fi
        systemd-analyze security --offline=true --threshold=20 --no-pager "$unit" >"$scratch/security.log" 2>&1 ||
            { tail -3 "$scratch/security.log"; return 1; }
        tail -1 "$scratch/security.log"
    done
}

lint_charts() { # with the defaults and with everything switched on
    local chart values out
    for chart in aggregator participant; do
        for values in minimal full; do
            out=$scratch/$chart-$values.yaml
            helm lint --quiet --strict "deploy/helm/$chart" --values "deploy/helm/ci/$chart-$values.yaml" &&
                helm template it "deploy/helm/$chart" --values "deploy/helm/ci/$chart-$values.yaml" >"$out" &&
                judge_manifests "$out" || return 1
        done
    done
}

judge_manifests() { # against the schemas of Kubernetes; kinds of other projects have none there
    python - "$1" "$scratch/core.yaml" <<'PY'
import sys, yaml
ours = [d for d in yaml.safe_load_all(open(sys.argv[1])) if d]
core = [d for d in ours if not d["apiVersion"].startswith(("monitoring.coreos.com", "cert-manager.io"))]
yaml.safe_dump_all(core, open(sys.argv[2], "w"))
print(f"{len(core)} manifests judged, {len(ours) - len(core)} of other projects not")
PY
    kubernetes-validate --strict --quiet -k 1.31 "$scratch/core.yaml"
}

lint_values() { # the schema refuses what would not work
    local wrong
    for wrong in 'replicas=2' 'aggregator.address=nowhere' 'persistence.size=big'; do
        if helm template it deploy/helm/participant --values deploy/helm/ci/participant-minimal.yaml --set "$wrong" \
            >/dev/null 2>&1; then
            echo "the values schema lets $wrong through"
            return 1
        fi
    done
}

lint_chart_configs() { # what the charts write is read by the services themselves
    .venv/bin/python - "$scratch" <<'PY'
import sys, tomllib
from pathlib import Path
import yaml
from aggregator.config import Config as AggregatorConfig
from participant.config import Config as ParticipantConfig
for name, model in (("aggregator", AggregatorConfig), ("participant", ParticipantConfig)):
    for values in ("minimal", "full"):
        manifests = yaml.safe_load_all((Path(sys.argv[1]) / f"{name}-{values}.yaml").read_text())
        [config] = [one["data"] for one in manifests if one and one["kind"] == "ConfigMap"]
        model.model_validate(tomllib.loads(config[f"{name}.toml"]))
PY
}
