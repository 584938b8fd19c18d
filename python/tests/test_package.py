"""The package as people get it: help, examples, the wheel."""

import inspect
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

import talon
from conftest import ROOT, run_python

EXAMPLES = ROOT / "examples"


def test_everything_public_has_help():
    for name in talon.__all__:
        thing = getattr(talon, name)
        assert inspect.getdoc(thing), name
        if not inspect.isclass(thing):
            continue
        for method, value in vars(thing).items():
            if not method.startswith("_") and callable(value):
                assert inspect.getdoc(getattr(thing, method)), f"{name}.{method}"
    assert "context manager" in inspect.getdoc(talon.Engine)
    assert pathlib.Path(talon.__file__).with_name("py.typed").exists()


def test_quick_start(tmp_path):
    output = run_python(EXAMPLES / "quick_start.py", cwd=tmp_path)
    assert output.count("tau") == 3 and "It was a dark night" in output


def test_compare_drafters(tmp_path):
    output = run_python(EXAMPLES / "compare_drafters.py", "plot.svg", cwd=tmp_path)
    rows = {line.split()[0]: line.split() for line in output.splitlines()[1:]}
    assert float(rows["none"][1]) == 1.0
    assert float(rows["eagle3"][1]) > 1.5
    if "plot: plot.svg" in output:
        assert "<svg" in (tmp_path / "plot.svg").read_text(encoding="utf-8")
    else:
        assert "matplotlib is not installed" in output


def test_compare_drafters_without_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')\n")
    output = run_python(EXAMPLES / "compare_drafters.py", cwd=tmp_path, path=[tmp_path])
    assert "no plot: matplotlib is not installed" in output and "eagle3" in output
    assert not (tmp_path / "compare_drafters.svg").exists()


def test_long_context(tmp_path):
    output = run_python(EXAMPLES / "long_context.py", cwd=tmp_path)
    rows = {line.split()[0]: line.split() for line in output.splitlines()[2:5]}
    assert int(rows["full"][3]) == 0 and int(rows["exact"][3]) > 0
    assert int(rows["fast"][-1]) < int(rows["full"][-1]) / 2


def test_an_engine_left_open_does_not_hold_up_the_end(tmp_path):
    script = tmp_path / "leave.py"
    script.write_text(
        "import talon\n"
        "class Slow(talon.Drafter):\n"
        "    def propose(self, tokens, budget):\n"
        "        return talon.TokenTree(tokens[-1])\n"
        "engine = talon.Engine(drafter=Slow())\n"
        "params = talon.SamplingParams(max_tokens=20000, ignore_eos=True)\n"
        "stream = engine.stream('Once', params)\n"
        "next(stream)\n"
        "print('left')\n"
    )
    assert run_python(script) == "left\n"


def test_the_wheel_installs_and_runs_where_pip_is(tmp_path, monkeypatch):
    pytest.importorskip("pip")
    monkeypatch.syspath_prepend(ROOT / "python")
    import build_backend

    # Packs what is built already; `pip install .` runs CMake first.
    package = pathlib.Path(talon.__file__).parent
    monkeypatch.setattr(build_backend, "_build_package", lambda: package)
    name = build_backend.build_wheel(tmp_path)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        names = wheel.namelist()
    assert "talon/models/tiny/model.safetensors" in names and "talon/config.pyi" in names
    assert not any("golden" in inner or "__pycache__" in inner for inner in names)
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", site]
    subprocess.run([*pip, tmp_path / name], check=True, capture_output=True, timeout=300)
    code = (
        "import talon; print(talon.__file__);"
        "engine = talon.Engine(config=talon.EngineConfig(max_sequences=1,"
        " speculative_config=talon.SpeculativeConfig(method='eagle3')));"
        "print(len(engine.generate('Once', talon.SamplingParams(max_tokens=4))[0].tokens))"
    )
    output = run_python("-c", code, cwd=tmp_path, path=[site])
    assert output.splitlines() == [os.path.join(site, "talon", "__init__.py"), "4"]
