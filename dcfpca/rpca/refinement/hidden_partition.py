"""The parts of a site as the inner method sees them: with hidden entries, and each the inner site of a staged one."""

from __future__ import annotations

from dataclasses import dataclass

from dcfpca.rpca.method import FloatArray, Partition, PartTask, Site
from dcfpca.rpca.refinement.hidden_entries import HiddenColumns
from dcfpca.rpca.refinement.site import StagedSite


@dataclass(frozen=True, slots=True, eq=False)
class HiddenPartition:
    """A partition whose columns have entries hidden."""

    partition: Partition
    columns: HiddenColumns

    @staticmethod
    def of(partition: Partition, share: float, seed: int) -> HiddenPartition:
        """Hide this share of the partition's entries."""
        return HiddenPartition(partition, HiddenColumns(partition.columns, share, seed))

    def total(self, task: PartTask) -> FloatArray:
        """The sum of what the inner sites answer."""
        return self.partition.total(FittingTask(task))


@dataclass(frozen=True, slots=True, eq=False)
class FittingTask:
    """Asks the inner site of a part, its entries hidden."""

    task: PartTask

    def __call__(self, site: Site) -> FloatArray:
        """What the inner site answers."""
        assert isinstance(site, StagedSite)  # parts are sites of the method that asks
        site.hidden.hiding = True
        return self.task(site.inner)
