"""``mlx-tx conform``: hold implementations to the spec."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .common import UsageError, add_clauses, add_device, add_spec, count, load, positive, usage_errors

HELP = "hold implementations to the spec: every clause on every target"
FORMATS = ("pretty", "json", "md", "junit")
DTYPES = ("float32", "float16", "bfloat16")
EXIT_INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="TARGET",
        help="mlx_tx, mlx_tx:PATH, mx.fast, package.module:factory, or a .py file with a function "
        "attention(q, k, v, scale, mask=None, ...). Repeatable (default: mlx_tx, both paths that run everywhere)",
    )
    add_clauses(parser)
    parser.add_argument(
        "--dtype", action="append", default=[], choices=DTYPES, help="only cases of this dtype. Repeatable"
    )
    parser.add_argument("--tag", action="append", default=[], help="only cases with this tag. Repeatable")
    add_device(parser)
    parser.add_argument("--format", choices=FORMATS, default="pretty", help="form of the report on stdout")
    parser.add_argument("--out", type=Path, metavar="JOURNAL", help="write the journal (JSON lines) to this file")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="JOURNAL",
        help="go on with a run that was cut short, with its targets, seed and selection unless given",
    )
    parser.add_argument(
        "--waivers", type=Path, metavar="FILE", help="known failures (YAML), each with ticket and expiry date"
    )
    parser.add_argument(
        "--jobs", type=count, metavar="N", help="worker processes, at most one a core (default: as many; one on a GPU)"
    )
    parser.add_argument(
        "--time-limit", type=positive, default=60.0, metavar="SECONDS", help="for one case (default: %(default)g)"
    )
    parser.add_argument("--seed", type=int, help="another draw of the random inputs (default: 0)")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    add_spec(parser)


def run(args: argparse.Namespace) -> int:
    """Run the suite and print the report."""
    from mlx_tx_conformance import report
    from mlx_tx_conformance.runner import (
        InterruptedRunError,
        Plan,
        Waivers,
        conform,
        default_jobs,
        load_waivers,
        select,
    )
    from mlx_tx_conformance.targets import expand_target

    from .progress import watching

    if args.out is not None and not args.out.resolve().parent.is_dir():
        raise UsageError(f"--out: no folder {args.out.parent}")
    if args.out is not None and args.out.is_dir():
        raise UsageError(f"--out: {args.out} is a folder; name a file")
    root, spec = load(args.spec)
    with usage_errors():
        _take_up(args)
        words = args.target or ["mlx_tx"]
        targets = tuple(dict.fromkeys(target for word in words for target in expand_target(word, args.device)))
        on_gpu = args.device == "gpu" or (args.device == "auto" and sys.platform == "darwin")
        plan = Plan(
            cases=select(spec.cases, args.clause, args.dtype, args.tag),
            targets=targets,
            spec_root=root,
            known_cases=[case.id for case in spec.cases],
            device=args.device,
            seed=args.seed or 0,
            jobs=min(args.jobs, default_jobs()) if args.jobs else 1 if on_gpu else default_jobs(),
            time_limit=args.time_limit,
            selection={"clause": args.clause, "dtype": args.dtype, "tag": args.tag},
        )
        waivers = load_waivers(args.waivers) if args.waivers is not None else Waivers()
        try:
            with watching(args.quiet) as watcher:
                result = conform(plan, out=args.out, resume=args.resume, waivers=waivers, watcher=watcher)
        except InterruptedRunError as interrupted:
            done = len(interrupted.run.rows)
            journal = args.out or args.resume
            then = f"; go on with --resume {journal}" if journal else ""
            print(f"mlx-tx conform: interrupted after {done} results{then}", file=sys.stderr)
            return EXIT_INTERRUPTED
    if args.format == "pretty":
        report.pretty.show(result)
    else:
        sys.stdout.write(report.render(result, args.format))
        if result.nothing_ran():
            print(f"mlx-tx conform: {result.nothing_ran()}", file=sys.stderr)
    return result.exit_code


def _take_up(args: argparse.Namespace) -> None:
    """Go on with what the journal of ``--resume`` says, as far as nothing else was given."""
    from mlx_tx_conformance.runner import read_journal

    if args.resume is None:
        return
    header = read_journal(args.resume).header
    args.target = args.target or list(header.get("targets", ()))
    args.seed = header.get("seed") if args.seed is None else args.seed
    args.device = header.get("device", args.device) if args.device == "auto" else args.device
    if not (args.clause or args.dtype or args.tag):
        selection = header.get("selection") or {}
        args.clause, args.dtype, args.tag = (list(selection.get(name, ())) for name in ("clause", "dtype", "tag"))
