"""mlx_tx with one thing changed in what it answers, or in what it is asked: implementations wrong in one way."""

from __future__ import annotations

from dataclasses import replace

from mlx_tx_conformance.targets import open_target


class Altered:
    """``mlx_tx:composed`` whose results (``after``) or calls (``before``) a function changes."""

    def __init__(self, after=None, before=None, figures=None) -> None:
        self.inner = open_target("mlx_tx:composed")
        self.name, self.device = "altered", "cpu"
        self.after, self.before, self.figures = after, before, figures

    def precision(self, dtype):
        return self.inner.precision(dtype)

    def supports(self, call):
        return self.inner.supports(call)

    def path_refusal(self, path):
        return self.inner.path_refusal(path)

    def run(self, call):
        posed = call if self.before is None else self.before(call)
        result = self.inner.run(posed)
        return result if self.after is None else replace(result, outputs=self.after(dict(result.outputs), call))

    def figure(self, call, figure):
        return self.inner.figure(call, figure) if self.figures is None else self.figures(call, figure)


def stage(name, change):
    """Results in which one stage (and nothing that follows from it) is another."""

    def after(outputs, call):
        del call
        return {**outputs, name: change(outputs[name].copy())} if name in outputs else outputs

    return after
