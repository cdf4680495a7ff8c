"""pytest plugin: every case of the spec as a test item. Does nothing unless ``--mlxtx-target`` is given.

.. code-block:: shell

    pytest --mlxtx-target my_package.attention:attention --mlxtx-clause 'MSK-*'

Each item's name is the case's id; its clause, headroom and path are recorded as properties, so that ``--junitxml``
carries them. An unsupported case is skipped with its reason. The target runs in pytest's own process: what it raises is
an error of the case, but an abort, a segmentation fault or a hang ends or stops the whole session. ``mlx-tx conform``
runs targets in processes of their own and goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from .call import Target


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options."""
    group = parser.getgroup("mlxtx", "mlx-tx conformance")
    group.addoption(
        "--mlxtx-target",
        action="append",
        default=[],
        metavar="TARGET",
        help="hold this target to the spec: mlx_tx, mx.fast, package.module:factory, or a .py file (repeatable). It "
        "runs in this process: a crash or a hang of it ends or stops pytest (mlx-tx conform survives it)",
    )
    group.addoption(
        "--mlxtx-clause",
        action="append",
        default=[],
        metavar="GLOB",
        help="only these clauses, such as 'MSK-*', or cases, such as 'MSK-1/equals-*' (repeatable)",
    )
    group.addoption("--mlxtx-device", default="auto", choices=("auto", "cpu", "gpu", "emulated"), help="where to run")
    group.addoption("--mlxtx-spec", default=None, metavar="DIR", help="folder with the clause files")


def pytest_configure(config: pytest.Config) -> None:
    """With a target: take up OpenBLAS before anything imports MLX."""
    if config.getoption("--mlxtx-target"):
        from .runner.environment import preload_blas

        config.stash[_BLAS] = preload_blas()


_BLAS: pytest.StashKey[str] = pytest.StashKey()


def pytest_report_header(config: pytest.Config) -> str | None:
    """What the results rest on."""
    targets = config.getoption("--mlxtx-target")
    return f"mlx-tx: targets {', '.join(targets)}, BLAS {config.stash[_BLAS]}" if targets else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the spec's cases, before -k and the like choose among the items."""
    words = config.getoption("--mlxtx-target")
    if not words:
        return
    from .data import spec_root
    from .runner.environment import DeviceError, choose_device
    from .runner.select import SelectionError, select
    from .spec import SpecError, load_spec
    from .targets import TargetError, expand_target, open_target

    try:
        spec = load_spec(config.getoption("--mlxtx-spec"))
        cases = [case for _, case in select(spec.cases, config.getoption("--mlxtx-clause"))]
        device = choose_device(config.getoption("--mlxtx-device"))
        targets = [open_target(text, device) for word in words for text in expand_target(word, device)]
    except (SpecError, SelectionError, TargetError, DeviceError) as error:
        raise pytest.UsageError(str(error)) from error
    root = spec_root() if config.getoption("--mlxtx-spec") is None else spec.root
    for target in targets:
        collector = SpecCollector.from_parent(session, name=f"mlxtx:{target.name}", path=root)
        collector.prepare(cases, target)
        items.extend(collector.collect())


class SpecCollector(pytest.Collector):
    """The cases of the spec for one target."""

    path: Path
    cases: list[Any]
    target: Target

    def prepare(self, cases: list[Any], target: Target) -> None:
        """What to collect."""
        self.cases = cases
        self.target = target

    def collect(self) -> Iterator[pytest.Item]:
        """One item a case."""
        for case in self.cases:
            item = CaseItem.from_parent(self, name=case.id)
            item.case = case
            yield item


class BrokenClauseError(Exception):
    """A case that the target does not pass."""


class CaseItem(pytest.Item):
    """One case on one target."""

    case: Any

    def runtest(self) -> None:
        """Run the case; what is not supported is skipped, what does not conform fails with the message."""
        from .checks import run_case
        from .outcome import CONFORMING
        from .runner.worker import run_task

        assert isinstance(self.parent, SpecCollector)
        row = run_task(run_case, self.case, self.parent.target, order=0)
        for name in ("clause", "verdict", "headroom", "path", "fingerprint"):
            self.user_properties.append((name, row[name]))
        if row["verdict"] == "unsupported":
            pytest.skip(row["message"])
        if row["verdict"] not in CONFORMING:
            raise BrokenClauseError(f"{self.case.id} on {row['target']}: {row['verdict']}: {row['message']}")
        if row["message"]:
            self.add_report_section("call", "mlx-tx", row["message"])

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The message alone: the suite's own traceback says nothing about the target."""
        if isinstance(excinfo.value, BrokenClauseError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int, str]:
        """File and line of the case in the spec."""
        return self.case.file, max(0, int(self.case.line) - 1), self.case.id
