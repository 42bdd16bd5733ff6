# shellcheck shell=bash
# Sourced by deploy/verify.sh: everything that can be judged without running it.

lint_dockerfile() { hadolint deploy/Dockerfile; }

lint_base() { # a tag may name another image tomorrow; only a digest names one for ever
    local base=${DCFPCA_BASE:-$(sed -n 's/^ARG BASE=//p' deploy/Dockerfile)}
    if [[ $base =~ @sha256:[0-9a-f]{64}$ ]]; then echo "the base image is named by digest"; return; fi
    echo "the base image $base is named by tag: a release gives --build-arg BASE=…@sha256:… (see deploy/Dockerfile)"
    [[ -z ${DCFPCA_RELEASE:-} ]] # for trying out this will do, for a release it will not
}

lint_scripts() { shellcheck -x deploy/verify.sh deploy/demo/*.sh certs/*.sh examples/*.sh; } # with all that it sources

lint_compose() { check-jsonschema --quiet --builtin-schema vendor.compose-spec deploy/compose.yaml; }

lint_ci() { # by the schemas of GitHub and GitLab: they cannot be run here
    check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml &&
        check-jsonschema --quiet --builtin-schema vendor.gitlab-ci --data-transform gitlab-ci .gitlab-ci.yml
}

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

lint_charts() { # with the defaults, with everything switched on, and with each choice of that switched off again
    local chart values
    for chart in aggregator participant; do
        for values in minimal full; do
            helm lint --quiet --strict "deploy/helm/$chart" --values "deploy/helm/ci/$chart-$values.yaml" &&
                render "$chart" "$values" "$scratch/$chart-$values.yaml" || return 1
        done
        without "$chart" Certificate certManager.enabled=false &&
            without "$chart" ServiceMonitor metrics.serviceMonitor.enabled=false &&
            without "$chart" NetworkPolicy networkPolicy.enabled=false || return 1
    done
    helm lint --quiet --strict deploy/helm/aggregator --values deploy/helm/ci/aggregator-standby.yaml &&
        render aggregator standby "$scratch/aggregator-standby.yaml" || return 1
    judge_manifests "$scratch"/{aggregator,participant}-*.yaml
}

render() { # CHART VALUES OUT [--set KEY=VALUE]
    helm template it "deploy/helm/$1" --values "deploy/helm/ci/$1-$2.yaml" "${@:4}" >"$3"
}

without() { # CHART KIND KEY=VALUE: everything switched on has the kind, and with this value it has not
    local out=$scratch/$1-no-$2.yaml
    render "$1" full "$out" --set "$3" || return 1
    grep -qx "kind: $2" "$scratch/$1-full.yaml" || { echo "$1 has no $2 with everything switched on"; return 1; }
    if grep -x "kind: $2" "$out"; then echo "$1 has a $2 in spite of $3"; return 1; fi
}

judge_manifests() { # against the schemas of Kubernetes; kinds of other projects have none there
    python - "$scratch/core.yaml" "$@" <<'PY'
import sys, yaml
ours = [d for path in sys.argv[2:] for d in yaml.safe_load_all(open(path)) if d]
core = [d for d in ours if not d["apiVersion"].startswith(("monitoring.coreos.com", "cert-manager.io"))]
yaml.safe_dump_all(core, open(sys.argv[1], "w"))
print(f"{len(sys.argv) - 2} renderings: {len(core)} manifests judged, {len(ours) - len(core)} of other projects not")
PY
    kubernetes-validate --strict --quiet -k 1.31 "$scratch/core.yaml"
}

lint_values() { # the schema refuses what would not work, and names the key
    refused participant replicas replicas=2 && refused participant aggregator.address aggregator.address=nowhere &&
        refused participant persistence.size persistence.size=big && refused participant policy.max_rank policy.max_rank.most=9 &&
        refused aggregator replicas replicas=2 && refused aggregator persistence.size persistence.size=big &&
        refused aggregator certManager.consortium certManager.enabled=true && refused aggregator service.type service.type=Open &&
        refused aggregator standby.urlSecret standby.enabled=true
}

refused() { # CHART NAMED KEY=VALUE
    local said
    if said=$(helm template it "deploy/helm/$1" --set "$3" 2>&1); then echo "the values schema lets $3 through"; return 1; fi
    grep -qF -- "$2" <<<"$said" || { echo "$3 is refused without naming $2: $said"; return 1; }
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
