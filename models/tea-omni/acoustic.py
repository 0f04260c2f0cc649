"""The talker's acoustic part between training and shipping: in training its output is mel, in the weights latents.

Folding puts the codec's projection, and a sharpening across mel bands, into the last layer; unfolding takes them out
again, so that training goes on from shipped weights. What of the mel lies outside the codec's basis is lost by that: it
becomes the average mel.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from voice_agent.tea.codec import MEL_CHANNELS, MEL_FRAMES, LatentSpace
from voice_agent.tea.talker import TeaTalker
from voice_agent.tea.talker_net import TalkerConfig, TalkerNet

MEL_SIZE = MEL_FRAMES * MEL_CHANNELS
SHARPENING = 0.3
"""Strength that the weights are shipped with."""

SHARPENED_BANDS = 9  # the neighbourhood that a band is compared with
WEIGHT, BIAS = "frames.out.weight", "frames.out.bias"


def sharpening(strength: float) -> Tensor:
    """float32[320, 320] over the mel of a frame: adds `strength` times what each band has over its neighbourhood.

    Regression gives the mean of what may be, whose spectrum is flatter than speech; this undoes part of that.
    """
    bands = torch.arange(MEL_CHANNELS)
    near = ((bands[:, None] - bands).abs() <= SHARPENED_BANDS // 2).float()
    one = torch.eye(MEL_CHANNELS) * (1 + strength) - near / near.sum(1, keepdim=True) * strength
    return torch.block_diag(*[one] * MEL_FRAMES)


def folded(state: dict[str, Tensor], space: LatentSpace, strength: float) -> dict[str, Tensor]:
    """Weights whose output is mel to weights whose output is the latent of the sharpened mel."""
    sharpen = sharpening(strength)
    weight = space.basis.T @ sharpen @ state[WEIGHT]
    bias = (sharpen @ state[BIAS] - space.center) @ space.basis
    return state | {WEIGHT: weight, BIAS: bias}


def unfolded(state: dict[str, Tensor], space: LatentSpace, strength: float) -> dict[str, Tensor]:
    """The other way round: `folded` of this gives `state` again."""
    sharpen = sharpening(strength)
    weight = torch.linalg.solve(sharpen, space.basis @ state[WEIGHT])
    bias = torch.linalg.solve(sharpen, space.basis @ state[BIAS] + space.center)
    return state | {WEIGHT: weight, BIAS: bias}


def acoustic_part(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of a talker's weights those of the phone encoder and the frame network."""
    return {name: value for name, value in state.items() if name.startswith(("encoder.", "frames."))}


def load_acoustic(net: TalkerNet, state: dict[str, Tensor]) -> None:
    """Put an acoustic part into a network, whose pronouncer and codebooks stay as they are."""
    net.load_state_dict(net.state_dict() | state)


def load_shipped(folder: Path) -> tuple[TalkerConfig, dict[str, Tensor]]:
    """Configuration and acoustic part, unfolded, of the talker in a folder of weights."""
    net = TeaTalker.load(folder / "talker.safetensors", 1).net
    space = LatentSpace.load(folder / "codec.safetensors")
    state = unfolded(acoustic_part(net.state_dict()), space, SHARPENING)
    return replace(net.config, latent_size=MEL_SIZE), state
