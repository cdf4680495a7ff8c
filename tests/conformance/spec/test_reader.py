import os
import sys

import pytest
import yaml

from mlx_tx_conformance.spec import reader
from mlx_tx_conformance.spec.errors import SpecError
from mlx_tx_conformance.spec.reader import MAX_BYTES, MAX_NODES, parse, read, scalar


@pytest.fixture(params=["libyaml", "pure"], autouse=True)
def parser(request, monkeypatch):
    """Every test with both parsers of PyYAML: which one is there differs between installations."""
    if request.param == "pure":
        monkeypatch.setattr(reader, "_Parser", yaml.SafeLoader)


def refusal(text):
    with pytest.raises(SpecError) as caught:
        parse(text, "spec/a/b.yaml")
    (finding,) = caught.value.findings
    return str(finding)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1e5", 1e5),
        (".5", 0.5),
        ("1.", 1.0),
        ("+3", 3),
        ("-7", -7),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        (".inf", float("inf")),
        ("-.inf", float("-inf")),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("12:30", "12:30"),
        ("1:30:00", "1:30:00"),
        ("2001-01-01", "2001-01-01"),
        ("1_000", "1_000"),
        ("0b101", "0b101"),
        ("1e", "1e"),
        (".", "."),
        ("-", "-"),
        ("nan", "nan"),
        ("-inf", "-inf"),
        ("１", "１"),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    result = scalar(text)
    assert result == value
    assert type(result) is type(value)


def test_nan_is_a_number_with_its_dot_only():
    assert scalar(".nan") != scalar(".nan")


def test_quoted_scalars_are_strings():
    assert parse("a: '1'\nb: \"true\"\nc: |\n  2\n", "f").value == {"a": "1", "b": "true", "c": "2\n"}


def test_the_line_of_every_node_is_kept():
    document = parse("a: 1\nb:\n  - x\n  - c: 2\n    d:\n\n      e: 3\n", "f")
    assert document.value == {"a": 1, "b": ["x", {"c": 2, "d": {"e": 3}}]}
    assert document.line("b") == 2
    assert document.line("b", 0) == 3
    assert document.line("b", 1, "c") == 4
    assert document.line("b", 1, "d") == 5
    assert document.line("b", 1, "d", "e") == 7
    assert document.line("b", 1, "d", "not there") == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "spec/a/b.yaml:2: 'a' is given twice (first on line 1)"),
        ("a: {b: 1, c: 2, b: 3}", "spec/a/b.yaml:1: 'b' is given twice (first on line 1)"),
        ("a: &x 1", "spec/a/b.yaml:1: anchors are not allowed (&x)"),
        ("&x a: 1", "spec/a/b.yaml:1: anchors and tags are not allowed"),
        ("a: 1\nb: *a", "spec/a/b.yaml:2: aliases are not allowed (*a); write the value out"),
        ("a: !!python/object/apply:os.system ['true']", "spec/a/b.yaml:1: tags are not allowed"),
        ("a: !!python/name:os.system", "spec/a/b.yaml:1: tags are not allowed"),
        ("!!set {a}", "spec/a/b.yaml:1: tags are not allowed"),
        ("a: !!binary aGk=", "spec/a/b.yaml:1: tags are not allowed"),
        ("1: a", "spec/a/b.yaml:1: a key must be a name; got 1"),
        ("~: a", "spec/a/b.yaml:1: a key must be a name; got ~"),
        ("? [a]\n: b", "spec/a/b.yaml:1: a key must be a name"),
        ("", "spec/a/b.yaml:1: is empty"),
        ("# a comment\n", "spec/a/b.yaml:1: is empty"),
        ("a: 1\n---\nb: 2", "spec/a/b.yaml:2: holds a second document"),
        ("a: 1\n\x07", "spec/a/b.yaml:2: holds the control character U+0007"),
        ("a: 1\nb: \x00", "spec/a/b.yaml:2: holds the control character U+0000"),
        ('a: 1\nb: "\\0"', "spec/a/b.yaml:2: a quoted text holds a control character"),
        ("a: 1e999", "spec/a/b.yaml:1: 1e999 is too large for a number"),
        (f"a: {'9' * 5000}", "spec/a/b.yaml:1: a number of 5000 characters is too long"),
        ("a: [1, 2", "spec/a/b.yaml"),
        ("a:\n\tb: 1", "spec/a/b.yaml:2: not valid YAML"),
        ("a\nb: 1", "spec/a/b.yaml:2: not valid YAML"),
        ("{a: 1}}", "spec/a/b.yaml:1: not valid YAML"),
        ("- " * 200 + "x", "spec/a/b.yaml:1: nested deeper than 32 levels"),
        ("[" * 5_000, "spec/a/b.yaml:1: "),
    ],
)
def test_what_is_refused_is_named_with_its_line(text, message):
    assert refusal(text).startswith(message)


def test_a_file_of_too_many_values_is_refused(monkeypatch):
    assert MAX_NODES == 100_000
    monkeypatch.setattr(reader, "MAX_NODES", 50)
    assert len(parse("a: [" + "1," * 47 + "]", "f").value["a"]) == 47
    assert refusal("a: [" + "1," * 49 + "]") == "spec/a/b.yaml:1: holds more than 50 values"


def test_a_merge_key_is_a_key_like_any_other():
    assert parse("<<: {a: 1}\nb: 2", "f").value == {"<<": {"a": 1}, "b": 2}


def test_a_billion_laughs_never_begin():
    laughs = 'a: &a ["lol"]\n' + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "anchors are not allowed" in refusal(laughs)


def file_refusal(path):
    with pytest.raises(SpecError) as caught:
        read(path, "spec/a/b.yaml")
    (finding,) = caught.value.findings
    return str(finding)


def test_a_file_is_read_with_or_without_a_byte_order_mark(tmp_path):
    path = tmp_path / "b.yaml"
    for start in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(start + "é: ü\r\nb: 1\r\n".encode())
        assert read(path, "f").value == {"é": "ü", "b": 1}


def test_a_large_file_is_refused_unread(tmp_path):
    path = tmp_path / "b.yaml"
    path.write_bytes(b"a: " + b"x" * (MAX_BYTES + 10))
    assert file_refusal(path) == "spec/a/b.yaml:1: is larger than 1,048,576 bytes (1,048,589)"


def test_a_file_of_the_largest_size_is_read(tmp_path):
    path = tmp_path / "b.yaml"
    path.write_bytes(b"a: " + b"x" * (MAX_BYTES - 3))
    assert len(read(path, "f").value["a"]) == MAX_BYTES - 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: 1\nb: \x00\x01", "spec/a/b.yaml:2: holds a zero byte"),
        ("a: é".encode("utf-16"), "spec/a/b.yaml:1: holds a zero byte"),
        (b"a: 1\n\nb: \xff", "spec/a/b.yaml:3: is not UTF-8: byte 0xff at offset 9"),
        ("a: é".encode("latin-1"), "spec/a/b.yaml:1: is not UTF-8: byte 0xe9 at offset 3"),
    ],
)
def test_binary_files_are_refused_with_the_place(tmp_path, data, message):
    path = tmp_path / "b.yaml"
    path.write_bytes(data)
    assert file_refusal(path).startswith(message)


def test_links_and_folders_are_refused(tmp_path):
    (tmp_path / "real.yaml").write_text("a: 1")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "real.yaml")
    (tmp_path / "c.yaml").mkdir()
    assert file_refusal(tmp_path / "b.yaml") == "spec/a/b.yaml:1: is a symbolic link; the spec takes plain files only"
    assert file_refusal(tmp_path / "c.yaml") == "spec/a/b.yaml:1: is no plain file"


def test_a_pipe_does_not_block(tmp_path):
    assert sys.platform != "win32"
    os.mkfifo(tmp_path / "b.yaml")
    assert file_refusal(tmp_path / "b.yaml") == "spec/a/b.yaml:1: is no plain file"


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert file_refusal(tmp_path / "b.yaml") == "spec/a/b.yaml:1: cannot be read: No such file or directory"
