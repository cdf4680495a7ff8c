"""``mlx-tx explain``: take one case apart."""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import UsageError, add_device, add_spec, load, usage_errors, write_text

HELP = "replay one case: the first stage that departs, the worst element, and a snippet that runs without this package"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("case", metavar="CASE", help="a case id, such as 'MSK-1/equals-oracle[bfloat16,T_q=9]'")
    parser.add_argument("--target", default="mlx_tx", metavar="TARGET", help="as for conform (default: %(default)s)")
    add_device(parser)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the run (default: %(default)s)")
    parser.add_argument("--snippet", type=Path, metavar="FILE", help="write the snippet to this file")
    add_spec(parser)


def run(args: argparse.Namespace) -> int:
    """Explain, and exit as conform would on this case alone."""
    _, spec = load(args.spec)
    with usage_errors():
        from mlx_tx_conformance.explain import explain, find_case
        from mlx_tx_conformance.runner.environment import choose_device, preload_blas
        from mlx_tx_conformance.targets import expand_target, open_target

        case = find_case(spec.cases, args.case)
        words = expand_target(args.target, args.device)
        preload_blas()
        device = choose_device(args.device)
        explanations = [explain(case, open_target(word, device), seed=args.seed) for word in words]
    for explanation in explanations:
        print(explanation.text())
    if args.snippet is not None:
        snippet = next((e.snippet for e in explanations if e.snippet and e.outcome.verdict != "pass"), "")
        snippet = snippet or next((e.snippet for e in explanations if e.snippet), "")
        if not snippet:
            raise UsageError("there is no snippet for this case")
        write_text(args.snippet, snippet)
    verdicts = {explanation.outcome.verdict for explanation in explanations}
    return 1 if "fail" in verdicts else 3 if "error" in verdicts else 0
