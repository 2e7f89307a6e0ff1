"""`witness gpu` and `witness probe`, on the doubles."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conftest import fake_card, in_process
from test_embedding import voice_model
from witness.cli import main
from witness.errors import UsageError
from witness.gpu import cards, graph_cache, rocm
from witness.gpu.migraphx import parse_shapes

SHAPE = ("--shape", "q=1x64x80")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "voice.onnx"
    voice_model(path)
    return path


@pytest.fixture
def witness(capfd):
    def run(*args: str | Path, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as stop:
            main.main([str(arg) for arg in args])
        out, err = capfd.readouterr()
        assert stop.value.code == code, err
        return out, err

    return run


@pytest.mark.usefixtures("card")
def test_warm_status_clear(witness, model):
    assert witness("gpu", "status")[0].splitlines() == [
        "GPU 0  Radeon RX 9070  gfx1201  16.0 GiB  listed for MIGraphX",
        "no compiled graphs; `witness gpu warm` makes them",
    ]
    out, err = witness("gpu", "warm", "--model", model, *SHAPE)
    assert err == "note: compiling voice.onnx for Radeon RX 9070 (gfx1201), for 600 s at most\n"
    head, measured = out.splitlines()
    name, state = head.split()
    assert state == "ready"
    assert measured.startswith("    voice.onnx, 1x64x80, fp32, gfx1201, MIGraphX 2.15.0, ")
    assert measured.endswith("cosine 1.000000")
    assert witness("gpu", "status")[0].splitlines()[1:] == [head, measured]
    document = json.loads(witness("gpu", "status", "--json")[0])
    assert document["cards"][0]["gfx"] == "gfx1201"
    (cached,) = document["graphs"]
    assert (cached["name"], cached["state"]) == (name, "ready")
    assert cached["graph"]["key"]["shape"] == [1, 64, 80]
    assert witness("gpu", "clear")[0].endswith(" MB freed\n")
    assert witness("gpu", "status")[0].splitlines()[1].startswith("no compiled graphs")


def test_status_says_why_a_graph_is_not_used(card, witness, model, doubles):
    witness("gpu", "warm", "--model", model, *SHAPE)
    fake_card(card, doubles, gfx="gfx1100")
    assert "it is for gfx gfx1201, here it is gfx1100" in witness("gpu", "status")[0]
    card.setattr(cards, "list_cards", lambda: ())
    assert "no AMD GPU is visible" in witness("gpu", "status")[0]
    fake_card(card, doubles)
    if not Path("/opt/rocm").exists():
        card.delenv("LD_LIBRARY_PATH")
        lines = witness("gpu", "status")[0].splitlines()
        assert "libamdhip64.so.7 and libmigraphx_c.so.3 cannot be found" in lines[1]
        assert lines[2].endswith(lines[1])
    (program,) = graph_cache.root().rglob("*.mxr")
    program.unlink()
    assert "damaged: " in witness("gpu", "status")[0]


@pytest.mark.usefixtures("card")
def test_what_cannot_be_pinned_is_a_usage_error(witness, model):
    for args in ((), ("--shape", "other=1x64x80")):
        _, err = witness("gpu", "warm", "--model", model, *args, code=2)
        assert "--shape q=1x1x80" in err
    _, err = witness("gpu", "warm", *SHAPE, code=2)
    assert "--shape is for --model" in err
    for shape in ("q=1x64x40", "q=1x64"):
        _, err = witness("gpu", "warm", "--model", model, "--shape", shape, code=2)
        assert "cannot be pinned to [1, 64" in err
        assert "give --shape q=1x1x80 or other sizes" in err
    _, err = witness("gpu", "warm", "--model", model.with_name("none.onnx"), *SHAPE, code=5)
    assert "none.onnx: cannot be read" in err


def test_shapes():
    assert parse_shapes(["feats=1x998x80", "a=b=2"]) == {"feats": (1, 998, 80), "a=b": (2,)}
    for text in ("1x998x80", "=1x2", "feats=", "feats=1x0", "feats=1x-2", "feats=1,2", "feats=²"):
        with pytest.raises(UsageError, match="is not like"):
            parse_shapes([text])


@pytest.fixture(scope="module")
def graph(doubles, model, tmp_path_factory) -> Path:
    """What `witness gpu export` writes."""
    folder = tmp_path_factory.mktemp("export")
    file = folder / "graph.zip"
    with pytest.MonkeyPatch.context() as patch:
        fake_card(patch, doubles)
        patch.setenv("WITNESS_CACHE", str(folder / "cache"))
        assert in_process(folder, "gpu", "warm", "--model", model, *SHAPE).returncode == 0
        assert str(file) in in_process(folder, "gpu", "export", file).stdout.decode()
    return file


@pytest.fixture
def exported(card, graph, tmp_path) -> Path:
    """Such a file of this test's own, beside an empty cache."""
    del card
    return shutil.copy(graph, tmp_path / "graph.zip")


def test_import_takes_what_is_for_this_machine_without_compiling(exported, card, witness, model, tmp_path):
    card.setenv("FAKE_LOG", str(tmp_path / "log"))
    out, _ = witness("gpu", "import", exported, "--model", model)
    assert "imported" in out
    assert "cosine 1.000000" in out
    assert "COMPILE" not in (tmp_path / "log").read_text()
    assert " ready\n" in witness("gpu", "status")[0]


def test_import_refuses_and_says_what_differs(exported, card, witness, model, doubles, tmp_path):
    def refused(reason: str, *args, code: int = 6) -> None:
        out, err = witness("gpu", "import", exported, "--model", model, *args, code=code)
        assert out == ""
        assert reason in err
        assert not list(graph_cache.root().glob("*/"))

    fake_card(card, doubles, gfx="gfx1100")
    refused("it is for gfx gfx1201, here it is gfx1100")
    fake_card(card, doubles)
    card.setenv("FAKE_WRONG", "1")
    refused("the GPU gives other numbers than the CPU")
    card.delenv("FAKE_WRONG")
    card.setenv("FAKE_GFX", "gfx1100")  # it is a gfx1201 only by the word of sysfs
    refused("MIGraphX")
    card.delenv("FAKE_GFX")
    card.setenv("LD_LIBRARY_PATH", str(tmp_path / "rocm"))
    (tmp_path / "rocm").mkdir()
    for library in doubles.iterdir():
        (tmp_path / "rocm" / library.name).write_bytes(library.read_bytes() + b"another version")
    refused("it is for migraphx libmigraphx_c.so.3 ")
    card.setenv("LD_LIBRARY_PATH", str(doubles))
    other = tmp_path / "other.onnx"
    voice_model(other, seed=8)
    refused("it is for model ", "--model", str(other))
    exported.write_bytes(exported.read_bytes()[:-1000])
    refused("graph.zip: not a file of `witness gpu export`", code=4)


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "more.txt"])
def test_import_unpacks_no_other_names(exported, witness, model, tmp_path, name):
    with zipfile.ZipFile(exported, "a") as archive:
        archive.writestr(name, b"x")
    _, err = witness("gpu", "import", exported, "--model", model, code=6)
    assert "graph.zip: not taken: it holds" in err
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("size", [1 << 10, 100 << 20])
def test_import_inflates_nothing(exported, witness, model, size, monkeypatch):
    """A manifest of gigabytes would be a file of megabytes."""
    with zipfile.ZipFile(exported, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(graph_cache.MANIFEST, b" " * size)
    monkeypatch.setattr(zipfile.ZipFile, "read", None)
    _, err = witness("gpu", "import", exported, "--model", model, code=6)
    assert "graph.zip: not taken: 'manifest.json' in it is compressed" in err


def test_import_reads_no_manifest_that_is_too_large(exported, witness, model):
    with zipfile.ZipFile(exported, "w") as archive:
        archive.writestr(graph_cache.MANIFEST, b" " * (1 << 20))
    _, err = witness("gpu", "import", exported, "--model", model, code=6)
    assert "graph.zip: not taken: 'manifest.json' in it has 1 MiB" in err


def test_import_names_the_file_and_the_place(exported, witness, model):
    with zipfile.ZipFile(exported) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(parts[graph_cache.MANIFEST])
    document["key"]["shape"] = [1, "64", 80]
    with zipfile.ZipFile(exported, "w") as archive:
        for name, content in {**parts, graph_cache.MANIFEST: json.dumps(document).encode()}.items():
            archive.writestr(name, content)
    _, err = witness("gpu", "import", exported, "--model", model, code=6)
    assert "graph.zip: not taken: its manifest.json is damaged" in err
    assert "`$.key.shape[1]`" in err


def test_what_a_killed_import_left_is_cleared_away(exported, witness, model):
    for name in (".import-left", ".import-other"):
        (graph_cache.root() / name).mkdir(parents=True)
        (graph_cache.root() / name / "half.mxr").write_bytes(b"half")
    witness("gpu", "import", exported, "--model", model)
    assert not list(graph_cache.root().glob(".import-*"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.usefixtures("card")
def test_import_does_not_wait_for_a_pipe(witness, model, tmp_path):
    os.mkfifo(tmp_path / "graph.zip")
    _, err = witness("gpu", "import", tmp_path / "graph.zip", "--model", model, code=4)
    assert "graph.zip: not a file of `witness gpu export` (not a regular file)" in err


def test_import_looks_at_the_file_before_it_asks_for_a_gpu(witness, model, tmp_path, monkeypatch):
    monkeypatch.setattr(rocm, "choose_card", lambda _: pytest.fail("it asked for a card"))
    (tmp_path / "graph.zip").write_bytes(b"no archive")
    _, err = witness("gpu", "import", tmp_path / "graph.zip", "--model", model, code=4)
    assert "graph.zip: not a file of `witness gpu export`" in err


@pytest.mark.usefixtures("card")
def test_export_wants_one(witness, model, tmp_path):
    file = tmp_path / "graph.zip"
    assert "there are 0" in witness("gpu", "export", file, code=2)[1]
    for shape in ("q=1x64x80", "q=1x72x80"):
        out, _ = witness("gpu", "warm", "--model", model, "--shape", shape)
    assert "there are 2" in witness("gpu", "export", file, code=2)[1]
    assert "0 of them begin with 'x'" in witness("gpu", "export", file, "x", code=2)[1]
    assert "1x72x80" in witness("gpu", "export", file, out[:8])[0]
    assert file.exists()


def two_inputs(path: Path, operator: str) -> Path:
    """x [B, 4] and an index into rows of a table, through `operator`."""
    nodes = [
        helper.make_node("Gather", ["table", "index"], ["rows"]),
        helper.make_node("MatMul", ["x", "weights"], ["y"]),
        helper.make_node(operator, ["y"], ["z"]),
        helper.make_node("Add", ["z", "rows"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", 40]),
            helper.make_tensor_value_info("index", TensorProto.INT64, ["B"]),
        ],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["B", 40])],
        [
            numpy_helper.from_array(np.arange(120, dtype=np.float32).reshape(3, 40), "table"),
            numpy_helper.from_array(np.eye(40, dtype=np.float32), "weights"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def rows(out: str) -> dict[str, str]:
    head, line, row = (
        [cell.strip() for cell in text.strip("| \n").split(" | ")] for text in out.splitlines()
    )
    assert set(line) == {"---"}
    return dict(zip(head, row, strict=True))


@pytest.mark.usefixtures("card")
def test_probe(witness, model, tmp_path):
    row = rows(witness("probe", model, *SHAPE)[0])
    assert row["model"] == "voice.onnx"
    taken, _, total = row["nodes on the GPU"].partition(" of ")
    assert taken == total
    assert row["left to the CPU"] == "-"
    assert float(row["cosine"]) == pytest.approx(1, abs=1e-6)
    assert row["inputs"] == "q 1x64x80"
    assert row["card"] == "Radeon RX 9070 (gfx1201)"
    assert all(row[column].endswith("s") for column in ("compile", "load", "GPU", "CPU"))

    path = two_inputs(tmp_path / "two.onnx", "Relu")
    row = rows(witness("probe", path, "--shape", "x=3x40", "--shape", "index=3")[0])
    assert row["nodes on the GPU"] == "4 of 4"
    assert row["inputs"] == "x 3x40, index 3"
    assert row["cosine"] == "1.000000"


@pytest.mark.usefixtures("card")
def test_probe_says_what_is_left_to_the_cpu(witness, tmp_path):
    path = two_inputs(tmp_path / "two.onnx", "Hardmax")
    row = rows(witness("probe", path, "--shape", "x=3x40", "--shape", "index=3")[0])
    assert "Hardmax (1)" in row["left to the CPU"]
    assert row["nodes on the GPU"].endswith(" of 4")
    assert row["nodes on the GPU"] != "4 of 4"


def test_probe_refuses(card, witness, model, tmp_path):
    assert "cannot be pinned to [80]; give --shape q=1x1x80 or" in witness("probe", model, code=2)[1]
    _, err = witness("probe", model, "--shape", "x=1x2", code=2)
    assert "voice.onnx: it has no input x; give --shape q=1x1x80 or other sizes" in err
    (tmp_path / "no.onnx").write_bytes(b"no model")
    assert "no.onnx: " in witness("probe", tmp_path / "no.onnx", code=5)[1]
    card.setenv("FAKE_COMPILE_MS", "600000")
    assert "no answer within 2 s" in witness("probe", model, *SHAPE, "--limit", "2", code=6)[1]
    card.setattr(cards, "list_cards", lambda: ())
    out, err = witness("probe", model, *SHAPE, code=6)
    assert out == ""
    assert "no AMD GPU is visible" in err
