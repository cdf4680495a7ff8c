"""The strict check: word rules, then clang with address spaces, then what the tree and the sizes show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from . import compiler, language
from .divergence import divergence
from .findings import Finding, Report, unique
from .kernel import Instance, KernelSource, Variant, instantiation, signature, variants
from .names import declared_names
from .pointers import check_pointers
from .signature_rules import signature_rules
from .sources import Source, read_source, word_rules
from .translation import translate

MAX_THREADGROUP_BYTES = 32768
_MAIN = "kernel.metal.cpp"
_PREAMBLE = '#include "mlx/backend/metal/kernels/utils.h"\n'
_HINTS: Mapping[str, str] = {
    "address-space": "arrays under 8 elements arrive in `constant`, larger in `device`: index them in the body and"
    " pass values, or take the pointer type as a template parameter",
    "bfloat-narrowing": "compute in float, store static_cast<T>(value), write literals as T(0)",
    "half-bfloat": "convert both to float",
    "double-arithmetic": "suffix the literal with f",
    "ambiguous-call": "cast the operands to one type",
    "vector-conversion": "convert component by component",
    "variable-length-array": "size it with a constexpr or a template parameter",
    "undeclared": "kernel attributes exist in the source only; helpers take them as arguments",
}


@dataclass(frozen=True)
class Checked:
    """Findings, and bytes of threadgroup memory by instance."""

    findings: tuple[Finding, ...]
    threadgroup_bytes: Mapping[str, int]


def check_kernel(kernel: KernelSource) -> list[Finding]:
    """Everything the strict check finds in a kernel, for every instance and with each input large and small.

    Raises ``LibclangMissingError`` when libclang cannot be loaded; ``check_words`` needs none.
    """
    return list(inspect_kernel(kernel).findings)


def check_words(kernel: KernelSource) -> list[Finding]:
    """The rules that need no compiler."""
    return unique(_kernel_words(*_read(kernel), kernel))


def inspect_kernel(kernel: KernelSource) -> Checked:
    """``check_kernel`` with the threadgroup bytes of every instance."""
    header, source = _read(kernel)
    findings = list(_kernel_words(header, source, kernel))
    if any(f.rule in ("unbalanced", "kernel-name", "template-value") for f in findings):
        return Checked(tuple(unique(findings)), {})
    sizes = {}
    for number, instance in enumerate(kernel.instances):
        for variant in variants(kernel, thorough=number == 0):
            text = _kernel_text(kernel, header, source, instance, variant)
            label = ", ".join(part for part in (instance.label, variant.label) if part)
            parsed = compiler.parse(text.text)
            findings += [text.place(c.line, c.rule, c.message, label) for c in parsed.complaints if c.file == _MAIN]
            findings += [_elsewhere(c, label) for c in parsed.complaints if c.file != _MAIN]
            if number == 0 and not variant.label:
                places = check_pointers(parsed.tree, {_MAIN: text.text})
                findings += [text.place(p.line, p.rule, p.message, "", p.hint) for p in places]
            sizes[instance.label or kernel.name] = sum(parsed.threadgroup_bytes.values())
    findings += [_too_large(source, label, size) for label, size in sizes.items() if size > MAX_THREADGROUP_BYTES]
    return Checked(tuple(unique(findings)), sizes)


def _read(kernel: KernelSource) -> tuple[Source, Source]:
    header = read_source(kernel.header, kernel.header_file[0], first_line=kernel.header_file[1], run_time=True)
    where, first = kernel.source_file
    return header, read_source(kernel.source, where, first_line=first, body_of=kernel.name, run_time=True)


def _kernel_words(header: Source, source: Source, kernel: KernelSource) -> Iterator[Finding]:
    declared = declared_names(header.tokens) | declared_names(source.tokens)
    declared |= {name for instance in kernel.instances for name in instance.template}
    yield from word_rules(header, declared)
    yield from word_rules(source, declared)
    yield from signature_rules(kernel, source.tokens, source.report)
    both = [*header.tokens, *source.tokens]
    yield from language.includes(both, kernel.header, header.report, run_time=True)
    for part in (header, source):
        for token in part.tokens:
            if token.text == "function_constant":
                yield part.report("function-constant", token, "a function constant", "make it a template parameter")
    if source.structure.unbalanced is None:
        yield from divergence(source.structure, source.report)


@dataclass(frozen=True)
class _Text:
    """The text given to clang, and where its lines come from: (first line there, source or None)."""

    text: str
    sections: Sequence[tuple[int, Source | None]]

    def place(self, line: int, rule: str, message: str, instance: str, hint: str = "") -> Finding:
        """A finding at line ``line`` of the text, placed in the source that the line comes from."""
        first, source = max((s for s in self.sections if s[0] <= line), key=lambda s: s[0])
        hint = hint or _HINTS.get(rule, "")
        if source is None:
            return Finding("generated signature", 0, rule, message, hint, instance=instance)
        return source.report(rule, line - first + 1, message, hint, instance=instance)


def _kernel_text(kernel: KernelSource, header: Source, source: Source, instance: Instance, variant: Variant) -> _Text:
    generated = signature(kernel, instance, variant)
    parts: list[tuple[str, Source | None]] = [
        (_PREAMBLE, None),
        (translate(header.text, header.structure, header.tokens) + "\n", header),
        (generated.text, None),
        (translate(source.text, source.structure, source.tokens), source),
        (instantiation(generated), None),
    ]
    text, sections = "", []
    for part, origin in parts:
        sections.append((text.count("\n") + 1, origin))
        text += part
    return _Text(text, sections)


def _elsewhere(complaint: compiler.Complaint, instance: str) -> Finding:
    where = Path(complaint.file).name or "kernel"
    hint = _HINTS.get(complaint.rule, "")
    return Finding(where, complaint.line, complaint.rule, complaint.message, hint, instance=instance)


def _too_large(source: Source, label: str, size: int) -> Finding:
    message = f"{size} bytes of threadgroup memory; at most {MAX_THREADGROUP_BYTES}"
    return source.report("threadgroup-memory", 0, message, "smaller tiles, or one buffer for two uses", instance=label)


def check_source(
    text: str,
    *,
    where: str = "source",
    include_dirs: Sequence[str | Path] = (),
    instances: Sequence[str] = (),
) -> list[Finding]:
    """Checks a file of MSL that has its own signatures, and the files it includes from ``include_dirs``.

    ``instances`` are calls of kernel templates to instantiate, such as ``attention<half, 64>``; a template that is
    not instantiated is checked as far as a template can be.
    """
    return list(inspect_source(text, where=where, include_dirs=include_dirs, instances=instances).findings)


def inspect_source(
    text: str,
    *,
    where: str = "source",
    include_dirs: Sequence[str | Path] = (),
    instances: Sequence[str] = (),
) -> Checked:
    """``check_source`` with the threadgroup bytes of every instance."""
    folders = [Path(folder) for folder in include_dirs]
    main = read_source(text, where)
    files = _included(text, folders, {})
    sources = [main, *files.values()]
    declared = frozenset().union(*(declared_names(s.tokens) for s in sources))
    findings = [f for source in sources for f in word_rules(source, declared)]
    for source in sources:
        findings += language.includes(source.tokens, source.text, source.report, run_time=False)
        if source.structure.unbalanced is None:
            findings += divergence(source.structure, source.report)
    if any(f.rule == "unbalanced" for f in findings):
        return Checked(tuple(unique(findings)), {})
    translated = {str(path): translate(s.text, s.structure, s.tokens) for path, s in files.items()}
    body = _PREAMBLE + translate(text, main.structure, main.tokens)
    placed = {_MAIN: (main, 1), **{str(path): (s, 0) for path, s in files.items()}}
    sizes = {}
    for number, call in enumerate(instances or [""]):
        instantiation = f"\ntemplate decltype({call}) {call};\n" if call else "\n"
        parsed = compiler.parse(
            body + instantiation, files_in_memory=translated, include_dirs=[str(f) for f in folders]
        )
        for c in parsed.complaints:
            if c.file in placed:
                source, before = placed[c.file]
                hint = _HINTS.get(c.rule, "")
                findings.append(source.report(c.rule, c.line - before, c.message, hint, instance=call))
            else:
                findings.append(_elsewhere(c, call))
        if number == 0:
            for p in check_pointers(parsed.tree, {_MAIN: body, **translated}):
                source, before = placed[p.file]
                findings.append(source.report(p.rule, p.line - before, p.message, p.hint))
        if call:
            sizes[call] = _bytes_of(call.partition("<")[0], parsed, placed)
    findings += [_too_large(main, label, size) for label, size in sizes.items() if size > MAX_THREADGROUP_BYTES]
    return Checked(tuple(unique(findings)), sizes)


def _bytes_of(kernel: str, parsed: compiler.Parsed, placed: Mapping[str, tuple[Source, int]]) -> int:
    """The bytes that the variables in one kernel's body take: clang also tells those of templates nobody called."""
    lines: set[tuple[str, int]] = set()
    for file, (source, _) in placed.items():
        for function in source.structure.functions:
            if function.name == kernel:
                lines.update((file, token.line) for token in source.structure.tokens[slice(*function.body)])
    return sum(size for v, size in parsed.threadgroup_bytes.items() if (v.file, v.line) in lines)


def _included(text: str, folders: Sequence[Path], found: dict[Path, Source]) -> dict[Path, Source]:
    """The files that ``text`` includes by name from the folders, and what those include; MLX's utils.h is ours."""
    for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.M):
        if compiler.is_declared(name):
            continue
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is not None and path not in found:
            content = path.read_text(encoding="utf-8")
            found[path] = read_source(content, name)
            _included(content, folders, found)
    return found


def main_check(kernels: Iterable[KernelSource]) -> Report:
    """Checks kernels and reports; without libclang the word rules run and the report says so."""
    findings: dict[str, tuple[Finding, ...]] = {}
    sizes: dict[str, int] = {}
    unsupported = "" if compiler.available() else compiler.MISSING
    for kernel in kernels:
        if unsupported:
            findings[kernel.name] = tuple(check_words(kernel))
            continue
        checked = inspect_kernel(kernel)
        findings[kernel.name] = checked.findings
        sizes |= {f"{kernel.name} {label}": size for label, size in checked.threadgroup_bytes.items()}
    return Report(findings, unsupported, sizes)


def check_paths(paths: Iterable[str | Path], *, include_dirs: Sequence[str | Path] = ()) -> Report:
    """Checks ``.metal`` files and headers, and those in folders.

    A file with functions is checked as a file; a file of statements is taken for a kernel's body, whose arguments
    nobody has said, and gets the word rules only.
    """
    findings: dict[str, tuple[Finding, ...]] = {}
    sizes: dict[str, int] = {}
    unsupported = "" if compiler.available() else compiler.MISSING
    for path in _metal_files(paths):
        text = path.read_text(encoding="utf-8")
        source = read_source(text, str(path))
        if not source.structure.functions or unsupported:
            alone = not source.structure.functions
            body = read_source(text, str(path), body_of=path.stem if alone else "")
            found = unique(word_rules(body, declared_names(body.tokens)))
            # The helpers that a body calls are declared in a header nobody named.
            findings[str(path)] = tuple(f for f in found if not (alone and f.rule == "name-unknown"))
            continue
        checked = inspect_source(text, where=str(path), include_dirs=[path.parent, *include_dirs])
        findings[str(path)] = checked.findings
        sizes |= {label: size for label, size in checked.threadgroup_bytes.items() if size}
    return replace(Report(findings, unsupported), threadgroup_bytes=sizes)


def _metal_files(paths: Iterable[str | Path]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if p.suffix in (".metal", ".msl"))
        elif path.is_file():
            yield path
        else:
            raise FileNotFoundError(f"[kernels check] no such file or folder: {path}")
