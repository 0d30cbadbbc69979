"""What kernel principal component analysis has seen, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from mercer._stored import Sometimes, stored
from mercer._stored.checks import need
from mercer._typing import FloatArray
from mercer.engine import ArrayTable, Executor, NormalStatistics, Rows, Threads
from mercer.methods.frame import Frame
from mercer.methods.pre_image import check_fixed_point, fitted_inverse, fixed_points
from mercer.methods.principal_components import PrincipalComponents, kernel_statistics, plain_is_safe, solve
from mercer.model import KernelExpansion, Sample

Inverse = Literal["ridge", "fixed_point"]


@stored
@dataclass(frozen=True)
class PrincipalSettings:
    """What the components depend on besides the rows, as it was when the rows came."""

    n_components: int | None
    whiten: bool
    inverse: Inverse | None

    def check_stored(self) -> None:
        """Refuse a number of components that is none."""
        need(self.n_components is None or self.n_components >= 1, "there are fewer components than one.")


@stored(also=("components",))
@dataclass(frozen=True)
class PrincipalSummary:
    """Statistics of the rows seen, on a frame. New rows make a new summary; the old one stays as it is."""

    frame: Frame
    statistics: NormalStatistics
    settings: PrincipalSettings
    sample: Sometimes[Sample | None] = None  # of the rows seen, if inverse is "ridge"

    def check_stored(self) -> None:
        """Refuse sums and components of another basis, and rows of another width."""
        self.frame.check_sums(self.statistics, np.zeros(1))
        need(self.statistics.total_weight > 0, "sums are of no rows.")
        found: PrincipalComponents | None = vars(self).get("components")
        if found is not None:
            self.frame.check_expansion(found.expansion, len(found.variances))
            need(len(found.mean) == len(self.frame.lower), "components are of another basis.")
        n_features = self.frame.basis.points.shape[1]
        need(self.sample is None or self.sample.rows.shape[1] == n_features, "a sample has rows of another width.")

    @classmethod
    def start(
        cls, frame: Frame, table: ArrayTable, settings: PrincipalSettings, *, once: Executor | None = None
    ) -> PrincipalSummary:
        """Summary of no rows. ``once`` promises that no other rows will come than these, summed by that executor."""
        whitened = once is None or not plain_is_safe(frame, table, settings.n_components, once)
        return cls(frame, NormalStatistics.zeros(len(frame.lower), 1, is_whitened=whitened), settings)

    def plus(self, table: ArrayTable, executor: Executor) -> PrincipalSummary:
        """Return the summary with these rows added."""
        if self.settings.inverse == "fixed_point":
            check_fixed_point(self.frame.kernel)
        whitened = self.statistics.is_whitened
        sums = kernel_statistics(table, self.frame, whitened=whitened, executor=executor)
        return replace(self, statistics=self.statistics + sums, sample=self._sampled(table))

    def merged(self, other: PrincipalSummary) -> PrincipalSummary:
        """Return the summary of both sets of rows."""
        mine, theirs = self.statistics, other.statistics
        if mine.is_whitened != theirs.is_whitened:
            mine, theirs = mine.whitened(self.frame.lower), theirs.whitened(self.frame.lower)
        both = self.sample is not None and other.sample is not None
        sample = self.sample.merged(other.sample) if both else None  # type: ignore[union-attr,arg-type]
        return replace(self, statistics=mine + theirs, sample=sample)

    @cached_property
    def components(self) -> PrincipalComponents:
        """The leading components."""
        settings = self.settings
        return solve(self.frame, self.statistics, n_components=settings.n_components, whiten=settings.whiten)

    def pre_images(self, values: Rows, executor: Executor) -> FloatArray:
        """Rows (n, d) for components (n, r)."""
        settings = self.settings
        if settings.inverse == "fixed_point":
            return fixed_points(values, self.components, self.frame, whitened=settings.whiten, executor=executor)
        if self._inverse is None:
            raise ValueError(
                "inverse_transform needs rows that were seen, and none were kept: fit with inverse='ridge', or with "
                "inverse='fixed_point' and a Gaussian kernel."
            )
        return self._inverse.evaluate(values, executor=executor)

    @cached_property
    def _inverse(self) -> KernelExpansion | None:
        if self.sample is None:
            return None
        return fitted_inverse(self.components, self.sample, executor=Threads(1))

    def _sampled(self, table: ArrayTable) -> Sample | None:
        """The sample with rows of the table; none if rows were seen of which none were kept."""
        if self.settings.inverse != "ridge" or (self.sample is None and self.statistics.n_rows):
            return None
        none = np.broadcast_to(0.0, (table.n_rows, 1))  # a sample has targets
        new = Sample.draw(replace(table, labels=none))
        return new if self.sample is None else self.sample.merged(new)
