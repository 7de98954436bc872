"""The models of make_architectures.py whose layers have a state besides keys and values."""
from architectures import LEFT_OUT, TIED, Variant, config

LFM2 = {"rms_norm_eps": LEFT_OUT, "norm_eps": 1e-05, "hidden_act": LEFT_OUT, "attention_dropout": LEFT_OUT,
        "tie_word_embeddings": LEFT_OUT, "tie_embedding": True, "rope_theta": 1000000.0, "conv_bias": True,
        "num_hidden_layers": 4}

STATES = [
    Variant("lfm2",
            config("Lfm2ForCausalLM", "lfm2", **LFM2 | {"intermediate_size": LEFT_OUT}, block_ff_dim=63, conv_L_cache=4,
                   block_ffn_dim_multiplier=1.1, block_multiple_of=8, block_auto_adjust_ff_dim=True,
                   full_attn_idxs=[1, 3]),
            without=[{"rope_theta": 100.0}, {"norm_eps": 0.3}],
            names=[r"model\.embedding_norm\.weight", r"model\.layers\.0\.conv\.conv\.bias",
                   r"model\.layers\.2\.feed_forward\.w3\.weight", r"model\.layers\.1\.self_attn\.out_proj\.weight"],
            **TIED),
    Variant("lfm2_moe",
            config("Lfm2MoeForCausalLM", "lfm2_moe", **LFM2, conv_L_cache=3, num_dense_layers=1, num_experts=5,
                   num_experts_per_tok=2, moe_intermediate_size=9, use_expert_bias=True, norm_topk_prob=True,
                   routed_scaling_factor=1.7, layer_types=["conv", "full_attention", "conv", "conv"]),
            without=[{"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}, {"norm_eps": 0.3}],
            names=[r"model\.layers\.1\.feed_forward\.experts\.4\.w[123]\.weight",
                   r"model\.layers\.2\.feed_forward\.expert_bias"],
            **TIED),
]
