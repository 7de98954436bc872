"""The models of make_architectures.py with latent attention."""
import torch

from architectures import EXPERTS, Variant, config

# The factors of cosines and of scores differ from 1 and from each other.
YARN = {"factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 4, "beta_slow": 1, "mscale": 0.9,
        "mscale_all_dim": 0.6}
# Sizes that no vector divides. The norms of latents have an eps of their own: all others have one that shows.
ODD = {"hidden_size": 40, "num_key_value_heads": 4, "kv_lora_rank": 18, "q_lora_rank": 22, "qk_nope_head_dim": 10,
       "qk_rope_head_dim": 6, "v_head_dim": 11, "rms_norm_eps": 0.02}
WHOLE = ODD | {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16}
SHARED = r"model\.layers\.1\.mlp\.shared_experts\.(gate|up|down)_proj\.weight"
LATENT_NAMES = [r"model\.layers\.1\.self_attn\.(kv_a_proj_with_mqa|kv_b_proj|kv_a_layernorm|o_proj)\.weight"]
QUERY_NAMES = [r"model\.layers\.1\.self_attn\.(q_a_proj|q_b_proj|q_a_layernorm)\.weight"]

LATENT = [
    Variant("deepseek_v2",
            config("DeepseekV2ForCausalLM", "deepseek_v2", num_hidden_layers=3, attention_bias=True,
                   rope_scaling=YARN | {"type": "yarn"}, n_routed_experts=8, num_experts_per_tok=3, n_group=4,
                   topk_group=2, topk_method="group_limited_greedy", n_shared_experts=2, moe_intermediate_size=9,
                   routed_scaling_factor=1.7, norm_topk_prob=False, first_k_dense_replace=1, moe_layer_freq=1,
                   scoring_func="softmax", aux_loss_alpha=0.001, seq_aux=True, pad_token_id=0, **ODD),
            without=[{"routed_scaling_factor": 1.0}, {"topk_group": 4}, {"topk_method": "greedy"}, {"rope_theta": 100.0},
                     {"rope_scaling": None}, {"rope_scaling.mscale": 0.6}, {"rope_scaling.mscale_all_dim": 0.0},
                     {"rms_norm_eps": 1e-6}],
            names=[EXPERTS, SHARED, *LATENT_NAMES, *QUERY_NAMES, r"model\.layers\.0\.mlp\.gate_proj\.weight"]),
    Variant("deepseek_v2_lite",
            config("DeepseekV2ForCausalLM", "deepseek_v2", num_hidden_layers=2, attention_bias=False,
                   rope_scaling=YARN | {"type": "yarn", "mscale": 0.7, "mscale_all_dim": 0.7}, n_routed_experts=5,
                   num_experts_per_tok=2, n_group=1, topk_group=1, topk_method="greedy", n_shared_experts=1,
                   moe_intermediate_size=9, routed_scaling_factor=1.0, norm_topk_prob=False, first_k_dense_replace=0,
                   torch_dtype="bfloat16", **WHOLE | {"q_lora_rank": None}),
            old_spelling=False, dtype=torch.bfloat16,
            without=[{"rope_scaling": None}, {"rope_scaling.mscale_all_dim": 0.3}, {"num_experts_per_tok": 3}],
            names=[EXPERTS, SHARED, *LATENT_NAMES, r"model\.layers\.1\.self_attn\.q_proj\.weight"]),
    Variant("deepseek_v3",
            config("DeepseekV3ForCausalLM", "deepseek_v3", num_hidden_layers=3, attention_bias=True,
                   rope_scaling=YARN | {"type": "yarn"}, n_routed_experts=8, num_experts_per_tok=3, n_group=4,
                   topk_group=2, topk_method="noaux_tc", n_shared_experts=2, moe_intermediate_size=9,
                   routed_scaling_factor=1.7, norm_topk_prob=True, first_k_dense_replace=1, moe_layer_freq=1,
                   scoring_func="sigmoid", ep_size=1, num_nextn_predict_layers=1, rope_interleave=True, **ODD),
            without=[{"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}, {"topk_group": 4}, {"n_group": 2},
                     {"rope_interleave": False}, {"rope_scaling": None}, {"rope_scaling.mscale_all_dim": 0.0},
                     {"rms_norm_eps": 1e-6}],
            names=[EXPERTS, SHARED, *LATENT_NAMES, *QUERY_NAMES, r"model\.layers\.1\.mlp\.gate\.e_score_correction_bias"],
            unused={"model.layers.3.eh_proj.weight": (40, 80), "model.layers.3.enorm.weight": (40,),
                    "model.layers.3.self_attn.kv_b_proj.weight": (84, 18),
                    "model.layers.3.shared_head.head.weight": (150, 40)}),
    Variant("deepseek_v3_halves",
            config("DeepseekV3ForCausalLM", "deepseek_v3", num_hidden_layers=2, attention_bias=False, rope_scaling=None,
                   n_routed_experts=6, num_experts_per_tok=2, n_group=1, topk_group=1, n_shared_experts=1,
                   moe_intermediate_size=9, routed_scaling_factor=1.3, norm_topk_prob=False, first_k_dense_replace=1,
                   num_nextn_predict_layers=0, rope_interleave=False, **WHOLE | {"q_lora_rank": None}),
            old_spelling=False, without=[{"rope_interleave": True}, {"norm_topk_prob": True}, {"rope_theta": 100.0}],
            names=[EXPERTS, r"model\.layers\.1\.self_attn\.q_proj\.weight"]),
    Variant("glm4_moe_lite",
            config("Glm4MoeLiteForCausalLM", "glm4_moe_lite", num_hidden_layers=3, attention_bias=True, rope_scaling=None,
                   rope_theta=1000000.0, partial_rotary_factor=1.0, pad_token_id=0, n_routed_experts=8,
                   num_experts_per_tok=3, n_group=4, topk_group=2, topk_method="noaux_tc", n_shared_experts=1,
                   moe_intermediate_size=9, routed_scaling_factor=1.8, norm_topk_prob=True, first_k_dense_replace=1,
                   mlp_layer_types=["sparse", "sparse", "dense"], num_nextn_predict_layers=1, **ODD),
            without=[{"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}, {"topk_group": 4},
                     {"rope_interleave": False}, {"rms_norm_eps": 1e-6}, {"rope_theta": 100.0}],
            names=[EXPERTS, SHARED, *LATENT_NAMES, *QUERY_NAMES, r"model\.layers\.2\.mlp\.gate_proj\.weight"],
            unused={"model.layers.3.eh_proj.weight": (40, 80), "model.layers.3.hnorm.weight": (40,)}),
]
