"""A whole model taken apart: its stages one after another, each held to the oracle on the implementation's own previous
ones, so that the first that departs is the one that is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from ..call import Call, Target
from ..checks.models import held_stages
from .stages import Departure, Finding


def stage_findings(target: Target, call: Call) -> Iterator[Finding]:
    """What every stage says, up to the first that departs."""
    stages = target.run(call.with_options(stages=True)).outputs
    for name, found in held_stages(call, stages, target.precision(call.dtype)):
        if isinstance(found, str):
            yield Finding(name, True, remark=found)
            return
        if found is None:
            yield Finding(name, False)
            continue
        departs = not found.headroom <= 1
        worst = Departure(name, found.index, found.actual, found.expected, found.limit, found.headroom)
        yield Finding(name, departs, found.headroom, worst)
        if departs:
            return
