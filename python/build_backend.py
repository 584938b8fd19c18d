"""Builds the wheel for `pip install .`: CMake makes the package, this file packs it.

It is a build backend as PEP 517 describes them, of the standard library alone. The build folder,
build-wheel, is kept, so that building again is quick.
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-wheel"
SUMMARY = "Speculative decoding: an inference engine for large language models"
MODEL_FILES = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config)\.json|model\.safetensors"
)


def _version() -> str:
    """The project's version, read from CMakeLists.txt."""
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    match = re.search(r"project\(talon VERSION ([\d.]+)", text)
    assert match, "CMakeLists.txt names no version"
    return match.group(1)


def _tag() -> str:
    """This Python, its ABI and this machine."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    return f"{python}-{python}-{platform}"


def _build_package() -> Path:
    """Runs CMake and returns the package's folder."""
    generator = ["-G", "Ninja"] if _has("ninja") else []
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DTALON_BUILD_TESTS=OFF"]
    options.append(f"-DTALON_PYTHON={sys.executable}")
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, *generator, *options], check=True)
    jobs = str(len(os.sched_getaffinity(0)))
    command = ["cmake", "--build", BUILD, "--target", "talon_python", "--parallel", jobs]
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit("talon: not built, see above; it needs pybind11 and Python's headers")
    return BUILD / "python" / "talon"


def _has(program: str) -> bool:
    return any((Path(folder) / program).exists() for folder in os.get_exec_path())


def _package_files(package: Path) -> list[tuple[str, Path]]:
    """(name in the wheel, file): the modules, and of the bundled models what runs need."""
    files = [path for path in package.iterdir() if path.is_file()]
    for model in ("tiny", "tiny-block", "tiny-draft", "tiny-eagle3"):
        folder = package / "models" / model
        files += [path for path in folder.iterdir() if MODEL_FILES.fullmatch(path.name)]
    return sorted((f"talon/{path.relative_to(package)}", path) for path in files)


def _metadata() -> str:
    return (
        "Metadata-Version: 2.1\n"
        "Name: talon\n"
        f"Version: {_version()}\n"
        f"Summary: {SUMMARY}\n"
        "License: Apache-2.0\n"
        "Requires-Python: >=3.11\n"
        "Provides-Extra: research\n"
        'Requires-Dist: numpy; extra == "research"\n'
    )


def _record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None) -> str:
    """PEP 517: writes the wheel and returns its name."""
    package = _build_package()
    stem = f"talon-{_version()}"
    info = f"{stem}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: talon\nRoot-Is-Purelib: false\nTag: {_tag()}\n"
    contents = [(name, path.read_bytes()) for name, path in _package_files(package)]
    contents += [
        (f"{info}/METADATA", _metadata().encode()),
        (f"{info}/WHEEL", wheel.encode()),
        (f"{info}/LICENSE", (ROOT / "LICENSE").read_bytes()),
    ]
    record = "".join(_record_line(*item) for item in contents) + f"{info}/RECORD,,\n"
    contents.append((f"{info}/RECORD", record.encode()))
    name = f"{stem}-{_tag()}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for inner, data in contents:
            archive.writestr(inner, data)
    return name


def build_sdist(sdist_directory, config_settings=None) -> str:
    """PEP 517 wants it; the repository itself is the source distribution."""
    raise NotImplementedError("talon is built from its repository")
