"""The shapes of Qwen/Qwen3-Omni-30B-A3B-Instruct as it is published, so that it can be planned for without a download.

The classes' defaults are other sizes. (Qwen3-Omni technical report, arXiv 2509.17765; the model's config.json.)
"""

from __future__ import annotations

from typing import Any

from transformers import Qwen3OmniMoeConfig

__all__ = ["published"]

ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e6}
IDS = {
    "audio_token_id": 151675,
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "audio_start_token_id": 151669,
}


def published() -> Qwen3OmniMoeConfig:
    """The configuration: every shape, and the ids that the model's own code asks for."""
    experts = {"num_experts": 128, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}
    thinker_text = {
        "vocab_size": 152_064, "hidden_size": 2048, "intermediate_size": 768, "moe_intermediate_size": 768,
        "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
        "num_experts_per_tok": 8, "max_position_embeddings": 65_536, "rope_parameters": dict(ROPE), **experts,
    }  # fmt: skip
    talker_text = {
        "vocab_size": 3072, "hidden_size": 1024, "intermediate_size": 2048, "moe_intermediate_size": 384,
        "shared_expert_intermediate_size": 768, "num_hidden_layers": 20, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 128, "num_experts_per_tok": 6, "max_position_embeddings": 65_536,
        "rope_parameters": dict(ROPE), **experts,
    }  # fmt: skip
    predictor = {
        "vocab_size": 2048, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 5,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "num_code_groups": 16,
    }  # fmt: skip
    audio = {
        "d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
        "output_dim": 2048, "downsample_hidden_size": 480, "num_mel_bins": 128, "max_source_positions": 1500,
        "n_window": 50, "n_window_infer": 800,
    }  # fmt: skip
    vision = {
        "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "out_hidden_size": 2048,
        "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
    }  # fmt: skip
    wave = {
        "codebook_size": 2048, "num_quantizers": 16, "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 16, "decoder_dim": 1536,
        "upsample_rates": (8, 5, 4, 3), "upsampling_ratios": (2, 2), "sliding_window": 72,
    }  # fmt: skip
    return Qwen3OmniMoeConfig(
        thinker_config={
            "audio_config": audio, "vision_config": vision, "text_config": thinker_text, "user_token_id": 872, **IDS,
        },
        talker_config={
            "text_config": talker_text, "code_predictor_config": predictor, "num_code_groups": 16,
            "thinker_hidden_size": 2048, "accept_hidden_layer": 24, "spatial_merge_size": 2,
            "speaker_id": {"chelsie": 2301, "ethan": 2302, "aiden": 2303}, "codec_pad_id": 2148, "codec_bos_id": 2149,
            "codec_eos_token_id": 2150, "codec_nothink_id": 2155, "codec_think_bos_id": 2156,
            "codec_think_eos_id": 2157, **IDS,
        },
        code2wav_config=wave,
        im_start_token_id=151_644, im_end_token_id=151_645, tts_pad_token_id=151_671, tts_bos_token_id=151_672,
        tts_eos_token_id=151_673, system_token_id=8948, user_token_id=872, assistant_token_id=77_091,
        enable_audio_output=True,
    )  # fmt: skip
