"""The paper's cost claims on the real system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.paper.composed_round_time import Curve, Exchange, curves, exchange_of, exponent
from benchmarks.sections import Section, document, paragraphs, picture, power, table


def costs(results: Path) -> Section | None:
    """Bytes, server work, and the time of a round in E."""
    exchange, sites = (document(results / f"paper-costs-{part}.json") for part in ("exchange", "sites"))
    if exchange is None or sites is None:
        return None
    line, plain = (exchange_of(exchange.runs, kind) for kind in ("secure", "plain"))
    found = curves(sites.steps, line)
    cheaper = {(one.method, one.columns): one.best for one in curves(sites.steps, plain)}
    shown = [_seconds(one, cheaper[one.method, one.columns]) for one in found]
    slopes = {name: exponent([one for one in found if one.method == name]) for name in ("gradient", "subspace")}
    return Section(
        "The paper: what a round costs",
        (
            "python -m benchmarks.paper.costs exchange --out benchmarks/results/paper-costs-exchange.json",
            "python -m benchmarks.paper.costs sites --out benchmarks/results/paper-costs-sites.json",
        ),
        paragraphs(
            *_bytes(exchange),
            _server(sites),
            "**Time of a round in E at fixed n.** The paper expects the best E near √n: a site's work falls as n/E, "
            "the exchange grows with E. Instead of E machines there are two cores here, so the round is "
            "composed of parts that were measured apart: the local step of a site with n/E columns (one thread, "
            "alone), the "
            "aggregator's step, and the exchange of real processes by a line through the rounds above: secure "
            f"{_line(line)}, plain {_line(plain)}. This includes the participants' own work, because they all run "
            "here, and excludes the latency of a network.",
            picture("paper-costs", "seconds of a round by E"),
            table(
                ["method", "n", "√n", "best E: secure", "plain", "composed", "round there, s", "at fewest E, s"], shown
            ),
            "By the model, c₀ + c₁ n/E for the site and a line for the exchange, the best E grows as "
            + " and ".join(f"n^{value:.2f} for `{name}`" for name, value in slopes.items())
            + " (the paper: n^0.5). Where it lies depends on what a site's message costs, which the paper leaves open.",
        ),
        (_nearest(found), _dearer(exchange.runs)),
    )


def _line(exchange: Exchange) -> str:
    return f"{exchange.fixed * 1000:.0f} ms + {exchange.each * 1000:.1f} ms · E"


def _nearest(found: list[Curve]) -> str:
    told = ", ".join(f"{one.best:.0f} at n = {one.columns} (`{one.method}`)" for one in found)
    return f"The best E is proportional to √n but smaller: {told}; a site's message costs too much here for more sites."


def _dearer(runs: list[Any]) -> str:
    seconds = {(run.aggregation, run.participants): run.median_round_s for run in runs}
    times = [seconds["secure", E] / seconds["plain", E] for kind, E in seconds if kind == "plain"]
    return f"A secure round takes {min(times):.1f} to {max(times):.1f} times a plain one (goal: 2)."


def _bytes(exchange: Any) -> list[str]:
    tensor = 2 * exchange.rows * exchange.rank * 8
    rows = [
        [
            run.aggregation,
            str(run.participants),
            f"{run.participants * tensor:,}",
            f"{round(run.participants * run.bytes_per_participant_round):,}",
            f"{run.bytes_per_participant_round - tensor:,.0f}",
            f"{run.median_round_s * 1000:.0f} ms",
        ]
        for run in exchange.runs
    ]
    return [
        f"**Bytes of a round**, m = {exchange.rows}, r = {exchange.rank}: the paper says 2·E·m·r numbers, so 2·E·m·r·8 "
        "bytes. Real processes over mutual TLS; bytes of the messages as the aggregator counts them, without TLS and "
        "HTTP/2 frames. The overhead is a round's scalars, headers and digests, and in a secure round keys, shares and "
        "signatures, which grow with the neighbours.",
        table(["sum", "E", "2·E·m·r·8", "measured", "overhead per site", "median round"], rows),
    ]


def _server(sites: Any) -> str:
    own = [step.aggregator_seconds for step in sites.steps]
    of = {name: max(step.aggregator_seconds for step in sites.steps if step.method == name) for name in _names(sites)}
    told = ", ".join(f"{seconds * 1000:.1f} ms for `{name}`" for name, seconds in of.items())
    return (
        "**Server work.** Adding one masked update to the running sum takes "
        f"{sites.adding_seconds * 1e6:.0f} µs; then, once a round and independent of E and n, the aggregator's "
        f"own step: at most {told} (least {power(min(own) * 1000)} ms). The paper's server only takes the mean, "
        f"O(mr log E); ours "
        "also has an O(mr²) step, which finds the subspace and the singular values."
    )


def _names(sites: Any) -> list[str]:
    return list(dict.fromkeys(step.method for step in sites.steps))


def _seconds(one: Curve, plain: float) -> list[str]:
    best = [f"{one.best:.0f}", f"{plain:.0f}", str(one.lowest)]
    return [one.method, f"{one.columns}", f"{one.columns**0.5:.0f}", *best, power(min(one.seconds)), _first(one)]


def _first(one: Curve) -> str:
    return f"{power(one.seconds[0])} (E = {one.sites[0]})"
