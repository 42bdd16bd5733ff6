"""`dcfpca init`, `up` and `down`: configurations with comments, and a consortium on one machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from dcfpca.cli.runs import Json
from dcfpca.errors import BadInput
from dcfpca.scaffold.config_texts import (
    DataKeys,
    aggregator_text,
    feature_names,
    operator_text,
    participant_text,
    spec_text,
)
from dcfpca.scaffold.local_consortium import (
    LocalPlan,
    create_consortium,
    find_consortium,
    sites_from,
    start_consortium,
    stop_consortium,
)
from dcfpca.scaffold.monthly_job import monthly_files
from dcfpca.spec import parse_spec
from dcfpca.text.console import print_json, result, say
from dcfpca.version import __version__
from dcfpca.wire.addresses import Address as Dialled
from dcfpca.wire.addresses import listening

app = typer.Typer(
    help="Write configurations with comments: for one role, or for a whole consortium on this machine.",
    no_args_is_help=True,
)

SECURE_SITES = 3
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the consortium.")]
Name = Annotated[str, typer.Option("--name", help="The name in the certificate: NAME.crt and NAME.key.")]
Address = Annotated[str, typer.Option("--aggregator", help="HOST:PORT that participants and operators dial.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]
IdColumn = Annotated[str, typer.Option(help="The column with the samples' ids.")]
Features = Annotated[list[str] | None, typer.Option("--feature", help="A column to use, or a pattern. Repeatable.")]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", help="A column, or a pattern, to leave out. Repeatable.")
]
Dataset = Annotated[str, typer.Option(help="The array to read if a file holds several (NPZ, HDF5, Zarr).")]
Missing = Annotated[Literal["allow", "refuse"], typer.Option(help="Whether empty entries count as unobserved.")]


@app.command()
def local(
    directory: Directory,
    sites: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=]FILE...", help="The data of each site; two or more.")
    ] = None,
    id_column: IdColumn = "",
    features: Features = None,
    exclude: Exclude = None,
    dataset: Dataset = "",
    missing: Missing = "allow",
    consortium: Annotated[str, typer.Option(help="Name of the consortium; it is part of every identity.")] = "local",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the aggregator; 0 takes a free one.")] = 0,
    as_json: Json = False,
) -> None:
    """Make a consortium on this machine, with certificates and configurations, ready for `dcfpca up DIR`."""
    files = sites or _ask("the data files of the sites, separated by spaces").split()
    keys = DataKeys("", id_column, features or (), exclude or (), missing, dataset)
    listen = f"127.0.0.1:{port}" if port else ""
    create_consortium(directory, LocalPlan(consortium, sites_from(files), keys, listen))
    operator, configs = directory / "operator" / "operator.toml", sorted(directory.glob("sites/*/participant.toml"))
    if as_json:
        print_json({"operator": str(operator), "sites": {path.parent.name: str(path) for path in configs}})
        return
    for config in configs:
        say(f"look at the data with `dcfpca-participant check --config {config}`")
    if len(configs) < SECURE_SITES:
        from dcfpca.operator.proposals import WHY_THREE  # noqa: PLC0415  imports NumPy

        say(f"a secure run needs {SECURE_SITES} sites. {WHY_THREE}")
    say(f"start it with `dcfpca up {directory}`, then run with `export DCFPCA_CONFIG={operator}`")
    result(str(operator))


@app.command()
def participant(
    name: Name = "",
    aggregator: Address = "",
    data: Annotated[str, typer.Option(help="The data file.")] = "",
    id_column: IdColumn = "",
    features: Features = None,
    exclude: Exclude = None,
    dataset: Dataset = "",
    missing: Missing = "allow",
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("participant.toml"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a site's configuration."""
    address = _dialled(aggregator)
    site = name or _ask("the site's name, as in its certificate", "--name")
    path = data or _ask("the data file", "--data")
    keys = DataKeys(path, id_column, features or (), exclude or (), missing, dataset)
    _write(out, participant_text(address, site, keys), force, as_json)
    say(f"check it with `dcfpca-participant check --config {out}`")


@app.command()
def aggregator(
    name: Name = "aggregator",
    listen: Annotated[str, typer.Option(help="host:port of the service.")] = "0.0.0.0:7443",
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("aggregator.toml"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the aggregator's configuration."""
    try:
        listening(listen)
    except ValueError as error:
        raise BadInput(f"--listen {listen}: {error}", "write it as HOST:PORT, such as 0.0.0.0:7443") from None
    _write(out, aggregator_text(listen, name, {"server": {"crl": "crl.pem"}}), force, as_json)
    say(f"check it with `dcfpca-aggregator check --config {out}`")


@app.command()
def operator(
    name: Name = "",
    aggregator: Address = "",
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("operator.toml"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write an operator's configuration."""
    address = _dialled(aggregator)
    _write(
        out,
        operator_text(address, name or _ask("the operator's name, as in the certificate", "--name")),
        force,
        as_json,
    )
    say(f"check it with `dcfpca doctor --config {out}`")


@app.command()
def spec(
    features: Annotated[
        Path,
        typer.Argument(metavar="FEATURES", help="What `dcfpca-participant check --json` prints, or one name per line."),
    ],
    label: Annotated[str, typer.Option(help="A label for listings and reports.")] = "",
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("spec.toml"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a spec that names a site's features: verdicts then name them, at the operator too."""
    try:
        names = feature_names(features.read_text(encoding="utf-8"), str(features))
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"{features} cannot be read", "check the path") from None
    parse_spec({"features": names, "label": label})
    _write(out, spec_text(names, label), force, as_json)
    say(f"a site says whether it would join with `dcfpca-participant check --spec {out}`")


@app.command()
def monthly(
    config: Annotated[Path, typer.Option("--operator", help="The operator's configuration.")] = Path("operator.toml"),
    spec: Annotated[Path, typer.Option("--spec", help="The spec of the run.")] = Path("spec.toml"),
    out: Annotated[Path, typer.Option(help="Directory for the files.")] = Path(),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a systemd service and timer, and a Kubernetes CronJob, for a run every month."""
    for path in (config, spec):
        if not path.exists():
            raise BadInput(f"{path} does not exist", "`dcfpca init operator` and `dcfpca init spec` write these files")
    made = monthly_files(str(config.resolve()), str(spec.resolve()), __version__)
    for name, text in made.items():
        _put(out / name, text, force)
    print_json({"files": [str(out / name) for name in made]}) if as_json else result("\n".join(made))


def up(directory: Directory, as_json: Json = False) -> None:
    """Start the services of a local consortium that are not running, and wait until every site is connected."""
    consortium = find_consortium(directory)
    started = start_consortium(consortium, say)
    if as_json:
        print_json({"config": str(consortium.operator_config), "started": started})
        return
    say(f"all sites are connected; stop them with `dcfpca down {directory}`")
    result(f"export DCFPCA_CONFIG={consortium.operator_config}")


def down(directory: Directory, as_json: Json = False) -> None:
    """Stop a local consortium. Unfinished runs continue after the next `dcfpca up`."""
    stopped = stop_consortium(find_consortium(directory), say)
    if as_json:
        print_json({"stopped": stopped})


def _dialled(address: str) -> str:
    """The aggregator's address, asked for if it is not given; BadInput if nothing can be dialled there."""
    given = address or _ask("host:port of the aggregator", "--aggregator")
    Dialled.parse_all(given)
    return given


def _ask(what: str, flag: str = "") -> str:
    """Ask on a terminal; without one, BadInput names the flag."""
    if not sys.stdin.isatty():
        raise BadInput(f"{what}: not given", f"give {flag or 'them as arguments'}, or call this on a terminal")
    return str(typer.prompt(what, err=True))


def _write(path: Path, text: str, force: bool, as_json: bool) -> None:
    _put(path, text, force)
    print_json({"file": str(path)}) if as_json else result(str(path))


def _put(path: Path, text: str, force: bool) -> None:
    if path.exists() and not force:
        raise BadInput(f"{path} exists already", "give another --out, or --force to replace it")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
