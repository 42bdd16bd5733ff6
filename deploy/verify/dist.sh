# shellcheck shell=bash
# Sourced by deploy/verify.sh: what is released.

make_dist() {
    rm -rf dist
    timeout 300 pyproject-build --outdir dist . >"$build/dist.log" 2>&1 || { tail -5 "$build/dist.log"; return 1; }
    ls dist
}

wheel_runs_demo() { # with nothing of the checkout in reach
    local env=$scratch/env
    "${PYTHON:-python3}" -m venv "$env" &&
        timeout 300 "$env/bin/python" -m pip install --quiet --disable-pip-version-check dist/*.whl &&
        (cd "$scratch" && timeout 300 "$env/bin/dcfpca" demo --dir "$scratch/demo" --json >"$scratch/demo.json" 2>"$scratch/demo.log") ||
        { tail -5 "$scratch/demo.log"; return 1; }
    echo "demo: exit 0"
}

make_sbom() {
    cyclonedx-py environment --output-reproducible --of JSON -o dist/dcfpca.cdx.json "$scratch/env/bin/python" 2>"$build/sbom.log" ||
        { tail -3 "$build/sbom.log"; return 1; }
    echo "dist/dcfpca.cdx.json: $(python -c 'import json; print(len(json.load(open("dist/dcfpca.cdx.json"))["components"]))') components"
}
