"""Which offers are refused, with which status and words."""

from __future__ import annotations

import pytest

from tests.media_fakes import offer
from voice_agent.media.offer import OfferError, check_offer

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def candidate(host: str, number: int = 1) -> str:
    return f"a=candidate:{number} 1 udp 2122260223 {host} 50000 typ host\r\n"


async def test_a_good_offer_passes_unchanged() -> None:
    sdp = await offer()
    assert check_offer(sdp) == sdp.rstrip("\r\n") + "\r\n" or check_offer(sdp) == sdp


async def test_host_names_are_left_out_and_addresses_stay() -> None:
    sdp = await offer()
    named = sdp + candidate("3d2a6b1c.local") + candidate("some.host.example") + candidate("192.0.2.7", 3)
    checked = check_offer(named)
    assert ".local" not in checked
    assert "host.example" not in checked
    assert "192.0.2.7" in checked


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (lambda sdp: "", 400, "expected an SDP offer that begins with 'v=0', got ''"),
        (lambda sdp: "hello", 400, "got 'hello'"),
        (lambda sdp: '{"sdp": "v=0"}', 400, "begins with 'v=0'"),
        (lambda sdp: sdp.replace("m=audio 9", "m=audio nine").replace("m=audio", "m=aud io"), 400, "does not parse"),
        (lambda sdp: sdp.replace("a=setup:actpass", "a=setup:perhaps"), 400, "does not parse"),
        (lambda sdp: sdp + candidate("192.0.2.7") * 201, 400, "at most 200 candidates, got 20"),
        (lambda sdp: sdp + "a=rtcp-fb:111 x\r\n" * 1000, 400, "at most 600 lines of SDP"),
        (lambda sdp: sdp + "a=rtpmap:96 x/1\r\n" * 50, 400, "at most 40 codecs"),
        (lambda sdp: "v=0\r\ns=-\r\n", 422, "expected one audio section"),
        (lambda sdp: sdp.replace("m=audio", "m=video"), 422, "expected one audio section"),
        (lambda sdp: sdp.replace("opus/48000/2", "speex/16000"), 422, "expected the codec audio/opus"),
        (lambda sdp: _without(sdp, "a=ice-pwd"), 422, "expected ice-ufrag and ice-pwd"),
        (lambda sdp: _without(sdp, "a=fingerprint"), 422, "expected a DTLS fingerprint"),
        (lambda sdp: sdp.replace("a=sendrecv", "a=inactive"), 422, "got a=inactive"),
    ],
)
async def test_refusals(change, status: int, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OfferError) as caught:
        check_offer(change(await offer()))
    assert caught.value.status == status
    assert words in str(caught.value)
    assert "Traceback" not in str(caught.value)


def _without(sdp: str, start: str) -> str:
    return "\r\n".join(line for line in sdp.split("\r\n") if not line.startswith(start))
