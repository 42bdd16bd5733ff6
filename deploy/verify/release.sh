# shellcheck shell=bash
# Sourced by deploy/verify.sh: what makes a release of what dist.sh has built, all of it below dist/.

find_python() { # 3.12: the path of such an interpreter, by name or as pyenv keeps them
    local candidate
    for candidate in "python$1" "$HOME/.pyenv/versions/$1."*/bin/python; do
        # A name may be a shim that leads nowhere.
        if "$candidate" -c 'import sys' 2>/dev/null; then command -v "$candidate" && return; fi
    done
    return 1
}

extras() { # those that users install
    "$tools/bin/python" - dist/*.whl <<'PY'
import email, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    told = email.message_from_bytes(wheel.read(name))
print(*(extra for extra in told.get_all("Provides-Extra") if extra not in {"dev", "bench", "docs"}))
PY
}

installs_with() { # PYTHON EXTRA: into an empty environment, of which pip then finds nothing missing
    local env=$scratch/extra wheel
    wheel=$(realpath dist/*.whl)
    rm -rf "$env"
    "$1" -m venv "$env" &&
        timeout 600 "$env/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel${2:+[$2]}" &&
        "$env/bin/python" -m pip --disable-pip-version-check check &&
        (cd "$scratch" && "$env/bin/dcfpca" --version)
}

runs_demo() { # PYTHON: with every extra
    installs_with "$1" "$(extras | tr ' ' ,)" &&
        (cd "$scratch" && timeout 300 extra/bin/dcfpca demo --dir "$scratch/demo-$2" --json >"$scratch/demo.json")
}

write_notes() { # the section of the changelog, which must have a date
    local version
    version=$(version)
    grep -qE "^## $version — [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md || { echo "CHANGELOG.md gives $version no date"; return 1; }
    awk -v head="## $version " 'index($0, head) == 1 { found = 1; print; next } /^## / { found = 0 } found' CHANGELOG.md >dist/NOTES.md
    wc -l dist/NOTES.md
}

pack_site() {
    make --silent site && tar --sort=name --owner=0 --group=0 --mtime=@1735689600 -czf "dist/dcfpca-$(version)-site.tar.gz" -C build site
}

save_image() { # under the name by which it is loaded
    "${engine[@]}" tag "$image" "dcfpca:$(version)" &&
        "${engine[@]}" save "dcfpca:$(version)" | gzip -n >"dist/dcfpca-$(version)-image.tar.gz"
}

write_checksums() { (cd dist && rm -f SHA256SUMS && sha256sum -- * >SHA256SUMS && sha256sum --quiet --check SHA256SUMS && wc -l SHA256SUMS); }

verify_release() {
    local wanted python extra
    verify_dist
    [ -e dist/dcfpca-"$(version)"-py3-none-any.whl ] || { skip "the rest of the release" "there is no wheel"; return; }
    for wanted in ${RELEASE_PYTHONS:-3.11 3.12 3.13}; do
        python=$(find_python "$wanted") || { skip "Python $wanted" "it is not on this machine"; continue; }
        for extra in "" $(extras); do
            fetching_step "wheel${extra:+[$extra]} installs into an empty environment on Python $wanted" installs_with "$python" "$extra"
        done
        fetching_step "with every extra it runs the demo on Python $wanted" runs_demo "$python" "$wanted"
    done
    step "notes from the changelog" write_notes
    step "site" pack_site
    wait
    choose_engine
    if [ ${#engine[@]} -gt 0 ] && get_base && can_build && fetching_step "image builds" build_image; then
        step "image as an archive" save_image
    else
        skip "image" "there is no container engine that can build here"
    fi
    step "checksums" write_checksums
}
