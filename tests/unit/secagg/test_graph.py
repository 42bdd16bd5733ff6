"""The neighbour graph of large cohorts: who is neighbour of whom, what it costs, and that the sum still comes out."""

from math import ceil

import numpy as np
import pytest

from dcfpca import secagg
from dcfpca.secagg import errors
from dcfpca.secagg.dropout_recovery import graph
from tests.support.secagg import Attempt, context_of, random_vectors, site_names


def graph_over(count: int, salt: int = 0) -> graph.Graph:
    return graph.graph_of(context_of(count), site_names(count), salt.to_bytes(32, "big"))


@pytest.mark.parametrize("count", [3, 4, 10, 63, 64])
def test_up_to_64_everybody_is_everybodys_neighbour(count: int) -> None:
    made = graph_over(count)
    assert made.degree == count - 1
    assert made.threshold == context_of(count).threshold
    for name in site_names(count):
        assert sorted(made.neighbourhood(name)) == list(site_names(count))


@pytest.mark.parametrize("count", [65, 66, 100, 301])
def test_beyond_64_the_graph_is_regular_symmetric_and_places_are_unique(count: int) -> None:
    made = graph_over(count)
    around = {name: made.neighbourhood(name) for name in site_names(count)}
    for name, peers in around.items():
        assert len(set(peers)) == made.degree + 1 < count
        assert name in peers
        assert [made.place(name, peer) for peer in peers] == list(range(1, made.degree + 2))
        assert all(name in around[peer] for peer in peers)


def test_the_degree_grows_as_the_logarithm() -> None:
    sizes = [500, 1000, 2000, 4000]
    degrees = [graph.degree_for(size) for size in sizes]
    steps = np.diff(degrees)
    assert all(step >= 0 for step in steps)
    assert max(steps) <= 24, "doubling the cohort adds a few neighbours"
    assert graph.degree_for(1000) < 160


def test_the_ring_is_another_one_for_every_roster() -> None:
    rings = {graph_over(100, salt).ring for salt in range(20)}
    assert len(rings) == 20


@pytest.mark.parametrize("count", [100, 400, 1000])
def test_random_conspirators_neither_own_a_neighbourhood_nor_cut_the_ring(count: int) -> None:
    # The bound says 2^-60; here is a check that the conditions it counts hold with room to spare.
    rng = np.random.default_rng(count)
    degree = graph.degree_for(count)
    size, half = degree + 1, degree // 2
    needed = ceil(graph.NEIGHBOURHOOD_SHARE * size)
    for _ in range(200):
        corrupt = np.zeros(count, dtype=int)
        corrupt[rng.choice(count, ceil(graph.CORRUPT_SHARE * count), replace=False)] = 1
        wrapped = np.concatenate([[0], np.cumsum(np.concatenate([corrupt, corrupt]))])
        assert (wrapped[size : size + count] - wrapped[:count]).max() < 2 * needed - size
        assert (wrapped[half : half + count] - wrapped[:count]).max() < half - (size - needed)


@pytest.mark.parametrize(("dropped_before", "dropped_after"), [(0, 0), (2, 3)])
def test_the_sum_over_the_graph_is_that_of_the_survivors(dropped_before: int, dropped_after: int) -> None:
    context = context_of(66)
    made = Attempt(context, random_vectors(context, 20))
    names = context.cohort
    made.advertise(names)
    assert made.closed.graph.degree < 65
    sharing, delivering = names[dropped_before:], names[dropped_before + dropped_after :]
    made.share(sharing)
    made.bound(sharing)
    made.agree()
    made.mask(delivering)
    made.attest(delivering)
    made.reveal(delivering)
    expected = sum(made.vectors[name] for name in delivering)
    assert np.allclose(made.unmask(), expected, rtol=1e-12, atol=1e-9)


def test_each_participant_hears_of_its_neighbours_only() -> None:
    context = context_of(66)
    made = Attempt(context, random_vectors(context, 4)).run_to("attest")
    degree = made.closed.graph.degree
    name = context.cohort[7]
    assert len(secagg.roster_for(made.closed, name).adverts) == degree + 1
    assert len(made.delivery(name).shares) == degree
    request = secagg.request_for(made.closed, made.survivors, name, made.attestations)
    assert len(request.attestations) <= degree + 1


def test_cutting_the_ring_by_declaring_neighbours_dropped_is_refused_at_its_edge() -> None:
    context = context_of(66)
    made = Attempt(context, random_vectors(context, 4)).run_to("mask")
    ring, half = made.closed.graph.ring, made.closed.graph.degree // 2
    gap = set(ring[10 : 10 + half])
    left = secagg.Survivors(tuple(sorted(set(ring) - gap)))
    edge = made.sides[ring[9]]
    before = edge.pinned
    with pytest.raises(errors.BelowThreshold, match="neighbourhood"):
        edge.attest(left)
    assert edge.pinned == before
