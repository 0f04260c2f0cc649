"""What is replaced inside aiortc and aioice is in force, and only where it is asked for."""

from __future__ import annotations

import aioice.ice
import aiortc.rtcsctptransport
import pytest
from aiortc import RTCPeerConnection

from voice_agent.media import aiortc_patches

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def candidates(hosts: tuple[str, ...]) -> list[str]:
    connection = aioice.ice.Connection(ice_controlling=True)
    with aiortc_patches.host_addresses(hosts):
        await connection.gather_candidates()
    found = [candidate.host for candidate in connection.local_candidates]
    await connection.close()
    return found


async def test_ice_offers_the_addresses_that_are_named() -> None:
    aiortc_patches.install()
    assert await candidates(("127.0.0.1",)) == ["127.0.0.1"]
    assert "127.0.0.1" not in await candidates(())
    assert "127.0.0.1" not in aiortc_patches.lan_addresses()


async def test_a_dead_stun_server_delays_gathering_no_longer_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiortc_patches, "GATHERING_LIMIT_S", 0.1)
    connection = aioice.ice.Connection(ice_controlling=True, stun_server=("127.0.0.1", 9))
    with aiortc_patches.host_addresses(("127.0.0.1",)):
        await connection.gather_candidates()
    assert [candidate.type for candidate in connection.local_candidates] == ["host"]
    await connection.close()


def test_data_channels_send_pieces_that_fit_a_small_mtu() -> None:
    aiortc_patches.install()
    assert aiortc.rtcsctptransport.USERDATA_MAX_LENGTH == 1100


async def test_another_aiortc_is_told_apart() -> None:
    pc = RTCPeerConnection()
    receiver = pc.addTransceiver("audio").receiver
    aiortc_patches.tap(receiver, lambda packet: None)
    with pytest.raises(RuntimeError, match=r"expected aiortc 1\.16"):
        aiortc_patches.tap(object(), lambda packet: None)  # type: ignore[arg-type]
    await pc.close()
