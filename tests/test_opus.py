from __future__ import annotations

import av
import numpy as np
import psutil
import pytest

from voice_agent.media.jitter import opus_samples
from voice_agent.media.opus import FRAME, OpusDecoder, OpusEncoder


def test_a_tone_survives_and_timestamps_advance_by_960() -> None:
    pcm = (0.5 * np.sin(2 * np.pi * 440 * np.arange(FRAME * 50) / 48_000) * 32767).astype(np.int16)
    encoder, decoder = OpusEncoder(), OpusDecoder()
    packets = [encoder.encode(pcm[at : at + FRAME]) for at in range(0, len(pcm), FRAME)]
    assert [packet.pts for packet in packets] == [FRAME * i for i in range(50)]
    assert all(opus_samples(bytes(packet)) == FRAME for packet in packets)
    out = np.concatenate([decoder.decode(bytes(packet)) for packet in packets])
    assert out.dtype == np.float32
    assert len(out) == len(pcm)
    steady = out[9_600 : 9_600 + 24_000]
    assert np.argmax(np.abs(np.fft.rfft(steady))) == 220  # 2 Hz a bin
    assert np.sqrt(np.mean(steady**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.05)


def test_other_shapes_are_refused_and_damage_is_reported() -> None:
    with pytest.raises(ValueError, match=r"expected int16\[960\], got int16\[480\]"):
        OpusEncoder().encode(np.zeros(480, np.int16))
    with pytest.raises(av.FFmpegError):
        OpusDecoder().decode(b"\x7b\x3f")


def test_a_closed_encoder_leaves_no_threads_behind() -> None:
    def threads() -> int:
        return int(psutil.Process().num_threads())

    silence = np.zeros(FRAME, np.int16)
    before = threads()
    encoder = OpusEncoder()
    encoder.encode(silence)
    assert threads() > before
    encoder.close()
    assert threads() == before
    with pytest.raises(RuntimeError, match="expected an open encoder"):
        encoder.encode(silence)
