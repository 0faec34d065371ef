"""Settings of configuration files that no row reads: DeepSpeed's, nanotron's, torchtitan's and Accelerate's.

Names are those of deepspeed/runtime/config.py, constants.py and zero/config.py (deepspeedai/DeepSpeed edaa722, 2026),
src/nanotron/config (huggingface/nanotron 2411b02), torchtitan/config/job_config.py (pytorch/torchtitan f541d91, and those of 2026),
and accelerate 1.15.0.
"""

from typing import Final

from traincast.launch.unread_settings import UnreadEffect, UnreadRules, split_names

_Z: Final = "zero_optimization."
DEEPSPEED: Final = UnreadRules(
    (
        UnreadEffect(
            "another optimizer",
            ("optimizer.type",),
            neutral=("adam", "adamw", "sgd", "lion", "muon", "muadam", "muadamw", "musgd"),
        ),
        UnreadEffect(
            "master copy and gradients in 16 bits",
            ("bf16.bf16_master_weights_and_grads", "fp16.fp16_master_weights_and_grads"),
        ),
        UnreadEffect("optimizer states in 16 bits", ("bf16.bf16_optimizer_states",)),
        UnreadEffect(
            "weights stay in fp32 and are cast for every matmul",
            ("torch_autocast.enabled", "amp.enabled", "fp16.auto_cast"),
        ),
        UnreadEffect("options of a precision", ("torch_autocast.*",), given="torch_autocast.enabled"),
        UnreadEffect("options of a precision", ("amp.*",), given="amp.enabled"),
        UnreadEffect(
            "precision of communication",
            ("communication_data_type", "fp32_allreduce", "data_types.param_dtype"),
        ),
        UnreadEffect(
            "8-bit weights or gradients are communicated",
            (f"{_Z}zero_quantized_*", f"{_Z}zeropp_loco_param*"),
        ),
        UnreadEffect(
            "copies of the weights within a node (ZeRO++)", (f"{_Z}zero_hpz_partition_size",), neutral=(0, 1)
        ),
        UnreadEffect(
            "offloading of the optimizer",
            (f"{_Z}zenflow*", f"{_Z}offload_optimizer.super_offload", f"{_Z}cpu_offload*"),
        ),
        UnreadEffect("offloading of the optimizer", (f"{_Z}offload_optimizer.ratio",), neutral=(1,)),
        UnreadEffect("communication is not overlapped", (f"{_Z}overlap_comm",), at=(False,)),
        UnreadEffect("gradients are all-reduced", (f"{_Z}reduce_scatter",), at=(False,)),
        UnreadEffect(
            "another ZeRO-1",
            (f"{_Z}legacy_stage1", f"{_Z}use_all_reduce_for_fetch_params", f"{_Z}allgather_sequential"),
        ),
        UnreadEffect("tensor-parallel communication is overlapped", ("tensor_parallel.tp_overlap_comm",)),
        UnreadEffect("expert parallelism", ("expert_parallel.*", "expert_parallel", "moe.*")),
        UnreadEffect(
            "stages of a pipeline",
            ("pipeline.stages", "pipeline.partition*", "pipeline.activation_checkpoint_interval"),
            neutral=(0, 1),
        ),
        UnreadEffect(
            "activations are partitioned or tiled",
            ("activation_checkpointing.partition_activations", "activation_checkpointing.cpu_checkpointing"),
        ),
        UnreadEffect("sparse attention", ("sparse_attention", "sparse_attention.*")),
        UnreadEffect("sparse gradients of embeddings", ("sparse_gradients",)),
        UnreadEffect(
            "some steps skip tokens or layers",
            ("curriculum_learning.enabled", "data_efficiency.enabled", "progressive_layer_drop.enabled"),
        ),
        UnreadEffect(
            "some steps skip tokens or layers",
            ("curriculum_learning.*",),
            given="curriculum_learning.enabled",
        ),
        UnreadEffect(
            "some steps skip tokens or layers", ("data_efficiency.*",), given="data_efficiency.enabled"
        ),
        UnreadEffect(
            "some steps skip tokens or layers",
            ("progressive_layer_drop.*",),
            given="progressive_layer_drop.enabled",
        ),
        UnreadEffect(
            "model compression", ("compression_training.*", "quantize_training.*", "weight_quantization.*")
        ),
        UnreadEffect("another batch size", ("elasticity.enabled", "autotuning.enabled")),
        UnreadEffect("another batch size", ("elasticity.*",), given="elasticity.enabled"),
        UnreadEffect("another batch size", ("autotuning.*",), given="autotuning.enabled"),
        UnreadEffect(
            "compiled graphs",
            ("compile.deepcompile", "compile.enabled", "graph_harvesting", "compile.offload*"),
        ),
        UnreadEffect("generation between steps", ("hybrid_engine.enabled",)),
        UnreadEffect("generation between steps", ("hybrid_engine.*",), given="hybrid_engine.enabled"),
        UnreadEffect("weights are not gathered", ("disable_allgather",)),
    ),
    split_names("""
        zero_optimization.*_bucket_size zero_optimization.sub_group_size zero_optimization.stage3_*
        zero_optimization.*_threshold zero_optimization.max_live_parameters zero_optimization.max_reuse_distance
        zero_optimization.contiguous_gradients zero_optimization.allgather_partitions zero_optimization.round_robin_gradients
        zero_optimization.use_multi_rank_bucket_allreduce zero_optimization.offload_*
        zero_optimization.mics_hierarchical_params_gather zero_optimization.memory_efficient_linear
        zero_optimization.leaf_module* activation_checkpointing.* aio.* pipeline.* bf16.immediate_grad_update
        seq_parallel_communication_data_type wall_clock_breakdown memory_breakdown eigenvalue* optimizer.legacy_fusion
        use_data_before_expert_parallelism compile.* prescale_gradients gradient_predivide_factor zero_force_ds_cpu_optimizer
        data_types.buffer_dtype
    """),
    split_names("""
        optimizer.params.* optimizer.params scheduler.* scheduler gradient_clipping gradient_allreduce_op seed fp16.*
        bf16.check_overflow bf16.loss_scale* steps_per_print dump_state log_level zero_allow_untested_optimizer flops_profiler.*
        tensorboard.* wandb.* csv_monitor.* comet.* comms_logger.* monitor_config.* nebula.* checkpoint.* dataloader_drop_last
        vocabulary_size _* comment* //* tensor_parallel.* data_efficiency.seed
        zero_optimization.gather_16bit_weights_on_model_save zero_optimization.stage3_gather_*_on_model_save
        zero_optimization.load_from_fp32_weights zero_optimization.elastic_checkpoint zero_optimization.ignore_unused_parameters
        zero_optimization.pipeline_loading_checkpoint zero_optimization.override_module_apply
        zero_optimization.log_trace_cache_warnings zero_optimization.enable_sanity_checks zero_optimization.offload_*.nvme_path
    """),
    ("zero_optimization.*", "tensor_parallel.*", "bf16.*"),
)

_M: Final = "model.model_config."
_E: Final = f"{_M}moe_config."
NANOTRON: Final = UnreadRules(
    (
        UnreadEffect(
            "experts of examples/llamoe, unlike those of moe_config",
            (f"{_M}moe_num_experts", f"{_M}num_experts_per_tok", f"{_M}moe_*"),
        ),
        UnreadEffect("another width of experts", (f"{_E}moe_intermediate_size",), given=f"{_E}num_experts"),
        UnreadEffect("a shared expert", (f"{_E}enable_shared_expert",), given=f"{_E}num_experts"),
        UnreadEffect(
            "a shared expert", (f"{_E}shared_expert_intermediate_size",), given=f"{_E}enable_shared_expert"
        ),
        UnreadEffect(
            "another way to exchange tokens",
            (f"{_E}token_dispatcher_type",),
            neutral=("alltoall",),
            given=f"{_E}num_experts",
        ),
        UnreadEffect("another kind of model", (f"{_M}is_starcoder2_config",)),
        UnreadEffect("local attention", (f"{_M}sliding_window_size", f"{_M}flex_attention_mask")),
        UnreadEffect("attention within documents only", (f"{_M}_use_doc_masking",)),
        UnreadEffect(
            "gathered activations are saved for backward",
            ("parallelism.tp_recompute_allgather",),
            at=(False,),
        ),
        UnreadEffect(
            "another attention variant",
            (f"{_M}_attn_implementation",),
            neutral=("flash_attention_2", "ring", "ring_flash_triton", "llama3_ring_attention", "sdpa"),
        ),
        UnreadEffect("Domino overlaps tensor-parallel communication", ("domino", "parallelism.domino*")),
    ),
    split_names("""
        model.ddp_bucket_cap_mb model.make_vocab_size_divisible_by
        model.model_config._fused_* model.model_config._use_qkv_packed model.model_config.z_loss_enabled
        model.model_config.log_attn_probs model.model_config.ring_attn_* model.model_config.moe_config.router_aux_loss_coef
    """),
    split_names("""
        general.* checkpoints.* data_stages lighteval lighteval.* logging.* metrics_logging* profiler* s3_upload* tokenizer.*
        tokens.* optimizer.* model.init_method.* kill_switch_path experiment_logger* data.* model.model_config.*_token_id
        model.model_config.initializer_range model.model_config.is_llama_config model.model_config.is_qwen2_config
        model.model_config.max_position_embeddings model.model_config.pretraining_tp model.model_config.rms_norm_eps
        model.model_config.rope_* model.model_config.no_rope_layer model.model_config.use_cache
        model.model_config.z_loss_coefficient model.model_config.moe_config
    """),
    ("parallelism.*", "model.model_config.*"),
)

_P: Final = "parallelism."
TORCHTITAN: Final = UnreadRules(
    (
        UnreadEffect(
            "weights are gathered in 8 bits",
            ("float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.enable_fsdp_float8_all_gather"),
        ),
        UnreadEffect("products in 8 bits are emulated", ("float8.emulate", "quantize.linear.float8.emulate")),
        UnreadEffect(
            "precision of what is reduced", ("training.mixed_precision_reduce",), neutral=("float32",)
        ),
        UnreadEffect(
            "another precision",
            ("training.mixed_precision_param", "training.dtype"),
            neutral=("bfloat16", "float32"),
        ),
        UnreadEffect("another optimizer", ("optimizer.name",), neutral=("Adam", "AdamW")),
        UnreadEffect("the optimizer works in backward", ("optimizer.early_step_in_backward",)),
        UnreadEffect("how the optimizer works", ("optimizer.implementation",), neutral=("fused", "foreach")),
        UnreadEffect("whole logits on every rank", (f"{_P}disable_loss_parallel",)),
        UnreadEffect("compiled backward", (f"{_P}enable_compiled_autograd",)),
        UnreadEffect("expert parallelism", (f"{_P}expert_tensor_parallel_degree",), neutral=(1,)),
        UnreadEffect(
            "another way to exchange tokens",
            (f"{_P}expert_parallel_comm_backend",),
            neutral=("standard",),
            given=f"{_P}expert_parallel_degree",
        ),
        UnreadEffect(
            "layers are split over stages in another way",
            (
                f"{_P}pipeline_parallel_first_stage_less_layers",
                f"{_P}pipeline_parallel_last_stage_less_layers",
            ),
            neutral=(1,),
        ),
        UnreadEffect(
            "layers are split over stages in another way",
            (f"{_P}pipeline_parallel_split_points", f"{_P}pipeline_parallel_schedule_csv"),
            neutral=("[]",),
        ),
        UnreadEffect(
            "fault tolerance: replicas leave and join", ("fault_tolerance.enable", "experimental.enable_ft")
        ),
        UnreadEffect(
            "fault tolerance: replicas leave and join", ("fault_tolerance.*",), given="fault_tolerance.enable"
        ),
        UnreadEffect("how much is recomputed", ("activation_checkpoint.memory_budget",), neutral=(0.5,)),
        UnreadEffect("attention within documents only", ("model.attn_mask_type",), neutral=("causal",)),
        UnreadEffect("deterministic kernels", ("debug.deterministic", "training.deterministic")),
        UnreadEffect("only some weights are trained", ("lora.*", "peft.*")),
    ),
    split_names("""
        float8.filter_fqns quantize.*.filter_fqns *.precompute_float8_dynamic_scale_for_fsdp quantize.grouped_mm.*
        quantize.linear.mx.* mx.* activation_checkpoint.* compile.backend model.use_flex_attn
        model.norm_type training.gc_debug experimental.custom_import experimental.custom_args_module job.custom_config_module
        comm.mode training.disable_cuda_graphs
    """),
    split_names("""
        job.* profiling.* metrics.* checkpoint.* lr_scheduler.* comm.* memory_estimation.* validation.* debug.* optimizer.*
        model.tokenizer_path model.hf_assets_path model.print_after_conversion experimental.* fault_tolerance.*
        training.dataset* training.steps training.max_norm training.gc_freq training.seed training.warmup_steps
        training.debug_moe_force_load_balance parallelism.pipeline_parallel_expert_*
    """),
    ("parallelism.*", "training.*", "model.*"),
)

_F: Final = "fsdp_config.fsdp_"
ACCELERATE: Final = UnreadRules(
    (
        UnreadEffect(
            "sequence parallelism (Ulysses)", ("parallelism_config.parallelism_config_sp_size",), neutral=(1,)
        ),
        UnreadEffect(
            "another wrapping policy, which gathers more or less at once",
            (f"{_F}auto_wrap_policy",),
            neutral=("TRANSFORMER_BASED_WRAP",),
        ),
        UnreadEffect(
            "communication is overlapped in another way",
            (f"{_F}backward_prefetch", f"{_F}backward_prefetch_policy"),
            neutral=("BACKWARD_PRE",),
        ),
        UnreadEffect(
            "weights and gradients in low precision", ("fp8_config.opt_level", "fp8_config.use_msamp")
        ),
        UnreadEffect(
            "gradient accumulation",
            ("gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps"),
            neutral=(1,),
        ),
        UnreadEffect("the program runs on the CPU", ("use_cpu",)),
    ),
    split_names("""
        dynamo_config* dynamo_backend fp8_config.* fsdp_config.fsdp_forward_prefetch fsdp_config.fsdp_min_num_params
        fsdp_config.fsdp_version parallelism_config.parallelism_config_sp_*
    """),
    split_names("""
        compute_environment machine_rank main_* rdzv_* same_network tpu_* debug downcast_bf16 enable_cpu_affinity
        num_cpu_threads_per_process gpu_ids ipex_config* mpirun_config* commands command_file deepspeed_config.*
        fsdp_config.fsdp_transformer_layer_cls_to_wrap fsdp_config.fsdp_state_dict_type fsdp_config.fsdp_sync_module_states
        fsdp_config.fsdp_use_orig_params fsdp_config.fsdp_cpu_ram_efficient_loading fsdp_config.fsdp_ignored_modules
    """),
    ("fsdp_config.*", "parallelism_config.*", "fp8_config.*"),
)
