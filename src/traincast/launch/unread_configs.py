"""Settings of configuration files that no row reads: DeepSpeed's, nanotron's, torchtitan's and Accelerate's.

Names are those of deepspeed/runtime/config.py, constants.py and zero/config.py (deepspeedai/DeepSpeed edaa722, 2026),
src/nanotron/config (huggingface/nanotron 2411b02), torchtitan/config/job_config.py (pytorch/torchtitan f541d91, and those of 2026),
and accelerate 1.15.0.
"""

from typing import Final

from traincast.launch.unread_settings import Beside, Matter, listed

_Z: Final = "zero_optimization."
DEEPSPEED: Final = Beside(
    (
        Matter(
            "another optimizer", ("optimizer.type",), neutral=("adam", "adamw", "sgd", "lion", "muon", "muadam", "muadamw", "musgd")
        ),
        Matter(
            "master copy and gradients in 16 bits", ("bf16.bf16_master_weights_and_grads", "fp16.fp16_master_weights_and_grads")
        ),
        Matter("states of the optimizer in 16 bits", ("bf16.bf16_optimizer_states",)),
        Matter(
            "weights stay in 32 bits and are cast for every product", ("torch_autocast.enabled", "amp.enabled", "fp16.auto_cast")
        ),
        Matter("options of a precision", ("torch_autocast.*",), given="torch_autocast.enabled"),
        Matter("options of a precision", ("amp.*",), given="amp.enabled"),
        Matter("precision of what is communicated", ("communication_data_type", "fp32_allreduce", "data_types.param_dtype")),
        Matter("8-bit weights or gradients are communicated", (f"{_Z}zero_quantized_*", f"{_Z}zeropp_loco_param*")),
        Matter("copies of the weights within a node (ZeRO++)", (f"{_Z}zero_hpz_partition_size",), neutral=(0, 1)),
        Matter("offloading of the optimizer", (f"{_Z}zenflow*", f"{_Z}offload_optimizer.super_offload", f"{_Z}cpu_offload*")),
        Matter("offloading of the optimizer", (f"{_Z}offload_optimizer.ratio",), neutral=(1,)),
        Matter("communication is not overlapped", (f"{_Z}overlap_comm",), at=(False,)),
        Matter("gradients are all-reduced", (f"{_Z}reduce_scatter",), at=(False,)),
        Matter("another ZeRO-1", (f"{_Z}legacy_stage1", f"{_Z}use_all_reduce_for_fetch_params", f"{_Z}allgather_sequential")),
        Matter("tensor-parallel communication is overlapped", ("tensor_parallel.tp_overlap_comm",)),
        Matter("experts are cut", ("expert_parallel.*", "expert_parallel", "moe.*")),
        Matter(
            "stages of a pipeline",
            ("pipeline.stages", "pipeline.partition*", "pipeline.activation_checkpoint_interval"),
            neutral=(0, 1),
        ),
        Matter(
            "activations are partitioned, or tiled",
            ("activation_checkpointing.partition_activations", "activation_checkpointing.cpu_checkpointing"),
        ),
        Matter("attention to some tokens", ("sparse_attention", "sparse_attention.*")),
        Matter("gradients of embeddings", ("sparse_gradients",)),
        Matter(
            "tokens or layers are left out of some steps",
            ("curriculum_learning.enabled", "data_efficiency.enabled", "progressive_layer_drop.enabled"),
        ),
        Matter("tokens or layers are left out of some steps", ("curriculum_learning.*",), given="curriculum_learning.enabled"),
        Matter("tokens or layers are left out of some steps", ("data_efficiency.*",), given="data_efficiency.enabled"),
        Matter(
            "tokens or layers are left out of some steps", ("progressive_layer_drop.*",), given="progressive_layer_drop.enabled"
        ),
        Matter("compression of the model", ("compression_training.*", "quantize_training.*", "weight_quantization.*")),
        Matter("another batch", ("elasticity.enabled", "autotuning.enabled")),
        Matter("another batch", ("elasticity.*",), given="elasticity.enabled"),
        Matter("another batch", ("autotuning.*",), given="autotuning.enabled"),
        Matter("compiled graphs", ("compile.deepcompile", "compile.enabled", "graph_harvesting", "compile.offload*")),
        Matter("generation between steps", ("hybrid_engine.enabled",)),
        Matter("generation between steps", ("hybrid_engine.*",), given="hybrid_engine.enabled"),
        Matter("weights are not gathered", ("disable_allgather",)),
    ),
    listed("""
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
    listed("""
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
NANOTRON: Final = Beside(
    (
        Matter(
            "experts of examples/llamoe, which are not those of moe_config",
            (f"{_M}moe_num_experts", f"{_M}num_experts_per_tok", f"{_M}moe_*"),
        ),
        Matter("experts as wide as they say", (f"{_E}moe_intermediate_size",), given=f"{_E}num_experts"),
        Matter("a shared expert", (f"{_E}enable_shared_expert",), given=f"{_E}num_experts"),
        Matter("a shared expert", (f"{_E}shared_expert_intermediate_size",), given=f"{_E}enable_shared_expert"),
        Matter("another way to exchange tokens", (f"{_E}token_dispatcher_type",), neutral=("alltoall",), given=f"{_E}num_experts"),
        Matter("a model of another kind", (f"{_M}is_starcoder2_config",)),
        Matter("local attention", (f"{_M}sliding_window_size", f"{_M}flex_attention_mask")),
        Matter("gathered tokens are kept", ("parallelism.tp_recompute_allgather",), at=(False,)),
        Matter(
            "another attention",
            (f"{_M}_attn_implementation",),
            neutral=("flash_attention_2", "ring", "ring_flash_triton", "llama3_ring_attention", "sdpa"),
        ),
        Matter("Domino overlaps tensor-parallel communication", ("domino", "parallelism.domino*")),
    ),
    listed("""
        model.ddp_bucket_cap_mb model.make_vocab_size_divisible_by model.model_config._use_doc_masking
        model.model_config._fused_* model.model_config._use_qkv_packed model.model_config.z_loss_enabled
        model.model_config.log_attn_probs model.model_config.ring_attn_* model.model_config.moe_config.router_aux_loss_coef
    """),
    listed("""
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
TORCHTITAN: Final = Beside(
    (
        Matter(
            "weights are gathered in 8 bits",
            ("float8.enable_fsdp_float8_all_gather", "quantize.linear.float8.enable_fsdp_float8_all_gather"),
        ),
        Matter("products in 8 bits are emulated", ("float8.emulate", "quantize.linear.float8.emulate")),
        Matter("precision of what is reduced", ("training.mixed_precision_reduce",), neutral=("float32",)),
        Matter("another precision", ("training.mixed_precision_param", "training.dtype"), neutral=("bfloat16", "float32")),
        Matter("another optimizer", ("optimizer.name",), neutral=("Adam", "AdamW")),
        Matter("the optimizer works in backward", ("optimizer.early_step_in_backward",)),
        Matter("how the optimizer works", ("optimizer.implementation",), neutral=("fused", "foreach")),
        Matter("whole logits on every rank", (f"{_P}disable_loss_parallel",)),
        Matter("compiled backward", (f"{_P}enable_compiled_autograd",)),
        Matter("experts are cut", (f"{_P}expert_tensor_parallel_degree",), neutral=(1,)),
        Matter(
            "another way to exchange tokens",
            (f"{_P}expert_parallel_comm_backend",),
            neutral=("standard",),
            given=f"{_P}expert_parallel_degree",
        ),
        Matter(
            "layers are split over stages in another way",
            (f"{_P}pipeline_parallel_first_stage_less_layers", f"{_P}pipeline_parallel_last_stage_less_layers"),
            neutral=(1,),
        ),
        Matter(
            "layers are split over stages in another way",
            (f"{_P}pipeline_parallel_split_points", f"{_P}pipeline_parallel_schedule_csv"),
            neutral=("[]",),
        ),
        Matter("replicas that leave and join", ("fault_tolerance.enable", "experimental.enable_ft")),
        Matter("replicas that leave and join", ("fault_tolerance.*",), given="fault_tolerance.enable"),
        Matter("how much is recomputed", ("activation_checkpoint.memory_budget",), neutral=(0.5,)),
        Matter("deterministic kernels", ("debug.deterministic", "training.deterministic")),
        Matter("only some weights are trained", ("lora.*", "peft.*")),
    ),
    listed("""
        float8.filter_fqns quantize.*.filter_fqns *.precompute_float8_dynamic_scale_for_fsdp quantize.grouped_mm.*
        quantize.linear.mx.* mx.* activation_checkpoint.* compile.backend model.use_flex_attn model.attn_mask_type
        model.norm_type training.gc_debug experimental.custom_import experimental.custom_args_module job.custom_config_module
        comm.mode training.disable_cuda_graphs
    """),
    listed("""
        job.* profiling.* metrics.* checkpoint.* lr_scheduler.* comm.* memory_estimation.* validation.* debug.* optimizer.*
        model.tokenizer_path model.hf_assets_path model.print_after_conversion experimental.* fault_tolerance.*
        training.dataset* training.steps training.max_norm training.gc_freq training.seed training.warmup_steps
        training.debug_moe_force_load_balance parallelism.pipeline_parallel_expert_*
    """),
    ("parallelism.*", "training.*", "model.*"),
)

_F: Final = "fsdp_config.fsdp_"
ACCELERATE: Final = Beside(
    (
        Matter("sequences are cut (Ulysses)", ("parallelism_config.parallelism_config_sp_size",), neutral=(1,)),
        Matter(
            "another wrapping: more or less is gathered at once", (f"{_F}auto_wrap_policy",), neutral=("TRANSFORMER_BASED_WRAP",)
        ),
        Matter(
            "communication overlaps in another way",
            (f"{_F}backward_prefetch", f"{_F}backward_prefetch_policy"),
            neutral=("BACKWARD_PRE",),
        ),
        Matter("weights and gradients of low precision", ("fp8_config.opt_level", "fp8_config.use_msamp")),
        Matter(
            "several micro-batches make a step",
            ("gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps"),
            neutral=(1,),
        ),
        Matter("the program runs on the host", ("use_cpu",)),
    ),
    listed("""
        dynamo_config* dynamo_backend fp8_config.* fsdp_config.fsdp_forward_prefetch fsdp_config.fsdp_min_num_params
        fsdp_config.fsdp_version parallelism_config.parallelism_config_sp_*
    """),
    listed("""
        compute_environment machine_rank main_* rdzv_* same_network tpu_* debug downcast_bf16 enable_cpu_affinity
        num_cpu_threads_per_process gpu_ids ipex_config* mpirun_config* commands command_file deepspeed_config.*
        fsdp_config.fsdp_transformer_layer_cls_to_wrap fsdp_config.fsdp_state_dict_type fsdp_config.fsdp_sync_module_states
        fsdp_config.fsdp_use_orig_params fsdp_config.fsdp_cpu_ram_efficient_loading fsdp_config.fsdp_ignored_modules
    """),
    ("fsdp_config.*", "parallelism_config.*", "fp8_config.*"),
)
