"""Megatron-LM's arguments that no row reads: those that matter, those of small effect, and those without effect.

Names are those of megatron/training/arguments.py and the configuration classes it is made from (NVIDIA/Megatron-LM d98e8a6, 2026,
and earlier ones back to 2021), of deepspeedai/Megatron-DeepSpeed (4efb479), and of launchers in the same script.
"""

from dataclasses import replace
from typing import Final

from traincast.launch.unread_configs import DEEPSPEED
from traincast.launch.unread_settings import UnreadEffect, UnreadRules, split_names

UNREAD_EFFECTS: Final = (
    # the model
    UnreadEffect(
        "layers of a custom specification",
        ("spec", "model_spec", "heterogeneous_*", "num_unique_layers", "param_sharing_style"),
    ),
    UnreadEffect(
        "another attention variant",
        (
            *(
                "experimental_attention_variant",
                "linear_attention_freq",
                "linear_*_dim",
                "linear_num_*",
                "dsa_*",
                "gdp_*",
            ),
            *(
                "attention_output_gate",
                "chunk_attention*",
                "sparse_attention*",
                "use_kitchen*",
                "kitchen_attention_backend",
            ),
        ),
    ),
    UnreadEffect("residual streams", ("enable_mhc_connections", "mhc_*")),
    UnreadEffect("residuals in fp32", ("fp32_residual_connection",)),
    UnreadEffect("experts work in a latent dimension", ("moe_latent_size",)),
    UnreadEffect("prediction heads that share a layer", ("mtp_use_repeated_layer", "mtp_standalone")),
    UnreadEffect("only some weights are trained", ("freeze_*", "lora_*", "peft*", "adapter_*", "use_lora")),
    UnreadEffect("settings in another file", ("yaml_cfg",)),
    UnreadEffect("settings in a checkpoint", ("use_checkpoint_args", "use_mp_args_from_checkpoint_args")),
    UnreadEffect("batch size per rank (Megatron-LM of 2020)", ("batch_size",)),
    UnreadEffect(
        "sequences of varying length",
        ("variable_seq_lengths", "use_dynamic_batch_size", "max_tokens_per_gpu", "*sequence_packing*"),
    ),
    UnreadEffect(
        "attention within documents only", ("reset_attention_mask", "dataloader_inter_document_masking")
    ),
    # experts
    UnreadEffect(
        "another token dispatcher",
        ("moe_token_dispatcher_type",),
        neutral=("alltoall", "flex"),
        given="num_experts",
    ),
    UnreadEffect(
        "how experts compute, overlap or are recomputed",
        (
            *(
                "moe_shared_expert_overlap",
                "moe_use_legacy_grouped_gemm",
                "moe_layer_recompute",
                "moe_extended_tp",
            ),
            *(
                "moe_expert_rank_capacity_factor",
                "moe_paged_stash",
                "moe_single_grouped_weight",
                "moe_pad_expert_input_to_capacity",
            ),
            *(
                "overlap_dispatch_backward_with_experts_wgrad",
                "moe_dispatch_fwd_dtype",
                "moe_combine_bwd_dtype",
                "moe_upcycling*",
            ),
        ),
        given="num_experts",
    ),
    UnreadEffect(
        "experts of Megatron-DeepSpeed",
        (
            "topk",
            "mlp_type",
            "expert_interval",
            "moe_train_capacity_factor",
            "use_tutel",
            "enable_expert_tensor_parallelism",
        ),
        given="num_experts",
    ),
    # parallelism
    UnreadEffect(
        "sequences or batches are sharded in another way",
        ("ds_sequence_parallel_size", "force_ds_sequence_parallel"),
        neutral=(1,),
    ),
    UnreadEffect(
        "sequences or batches are sharded in another way",
        (
            "hybrid_context_parallel",
            "dynamic_context_parallel",
            "max_seqlen_per_dp_cp_rank",
            "max_seqlen_per_cp_rank",
        ),
    ),
    UnreadEffect(
        "weights are sharded over another group",
        ("gtp_*", "expert_gtp_*", "*_parallel_num_weight_shards"),
        neutral=(1,),
    ),
    UnreadEffect("replicas of the sharded state", ("outer_dp_sharding_strategy",), neutral=("no_shard",)),
    UnreadEffect("replicas of the sharded state", ("enable_full_sharding_in_hsdp",)),
    UnreadEffect("optimizer states of whole layers", ("use_layer_wise_distributed_optimizer",)),
    UnreadEffect(
        "layers are split over stages in another way",
        ("pp_partition_method",),
        neutral=("type:transformer", "uniform", "parameters"),
    ),
    UnreadEffect(
        "separate pipeline stages", ("standalone_embedding_stage", "pipeline_model_parallel_split_rank")
    ),
    UnreadEffect(
        "order of micro-batches in the pipeline",
        ("microbatch_group_size_per_virtual_pipeline_stage", "microbatch_group_size_per_vp_stage"),
    ),
    UnreadEffect(
        "order of micro-batches in the pipeline", ("num_microbatches_with_partial_activation_checkpoints",)
    ),
    UnreadEffect(
        "the encoder is sharded in another way",
        ("encoder_tensor_model_parallel_size", "encoder_pipeline_model_parallel_size"),
        neutral=(0, 1),
    ),
    UnreadEffect("that file sets ZeRO stage and offloading", ("deepspeed_config",), unless="zero_stage"),
    # overlap
    UnreadEffect(
        "communication is overlapped in another way",
        (
            *(
                "no_overlap_p2p_communication",
                "overlap_p2p_communication_warmup_flush",
                "overlap_p2p_comm_warmup_flush",
            ),
            *(
                "disable_tp_comm_*",
                "no_async_tensor_model_parallel_allreduce",
                "tp_comm_overlap_disable_*",
                "no_delay_grad_reduce",
            ),
        ),
    ),
    UnreadEffect(
        "communication is overlapped in another way",
        ("tp_comm_overlap_ag", "tp_comm_overlap_rs", "overlap_p2p_comm"),
        at=(False,),
        given="tp_comm_overlap",
    ),
    UnreadEffect(
        "CUDA graphs",
        (
            "enable_cuda_graph",
            "external_cuda_graph",
            "optimizer_cuda_graph",
            "cuda_graph_scope",
            "cuda_graph_modules",
        ),
    ),
    UnreadEffect("CUDA graphs", ("cuda_graph_impl", "megatron_fsdp_cuda_graph_mode"), neutral=("none",)),
    UnreadEffect("deterministic kernels", ("deterministic_mode", "batch_invariant_mode")),
    # precision and optimizer
    UnreadEffect(
        "precision of gradients or of the master copy",
        ("main_params_dtype", "megatron_fsdp_main_*_dtype"),
        neutral=("fp32", "float32", "torch.float32"),
    ),
    UnreadEffect("precision of gradients", ("main_grads_dtype",), neutral=("fp32", "bf16")),
    UnreadEffect(
        "precision of gradients or of the master copy",
        ("fp32_allreduce", "megatron_fsdp_grad_comm_dtype", "megatron_fsdp_use_decoupled_grad"),
    ),
    UnreadEffect(
        "precision of optimizer states",
        ("exp_avg_dtype", "exp_avg_sq_dtype"),
        neutral=("fp32", "bf16", "fp8", "float32", "torch.float32"),
    ),
    UnreadEffect(
        "the two moments differ in precision",
        ("exp_avg_dtype",),
        neutral=("fp32",),
        given="use_precision_aware_optimizer",
        unlike="exp_avg_sq_dtype",
    ),
    UnreadEffect(
        "the two moments differ in precision",
        ("exp_avg_sq_dtype",),
        neutral=("fp32",),
        given="use_precision_aware_optimizer",
        unlike="exp_avg_dtype",
    ),
    UnreadEffect("another optimizer", ("optimizer",), neutral=("adam", "sgd", "muon", "dist_muon")),
    UnreadEffect(
        "some matmuls are in another precision",
        (
            "first_last_layers_bf16",
            "te_precision_config_file",
            "kitchen_*",
            "quant_recipe",
            "fp8_quantizer_factory",
            "fp4_quantizer_factory",
        ),
    ),
    UnreadEffect(
        "some matmuls are in another precision",
        ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"),
        neutral=(0,),
        given="first_last_layers_bf16",
    ),
    UnreadEffect(
        "some matmuls are in another precision",
        (
            "no_fp8_wgrad",
            "fp8_dot_product_attention",
            "fp8_multi_head_attention",
            "fp8_output_proj",
            "activation_func_fp8_input_store",
        ),
        given="fp8_format",
    ),
    UnreadEffect("some matmuls are in another precision", ("fp8_wgrad",), at=(False,), given="fp8_format"),
    UnreadEffect("weights are gathered in 4 bits", ("fp4_param_gather",)),
    UnreadEffect("low-precision buffers", ("keep_fp8_transpose_cache*", "reuse_grad_buf_for_mxfp8_param_ag")),
    UnreadEffect(
        "distillation from a teacher",
        ("export_kd_*", "kd_*", "logits_load_dir", "distillation*", "teacher_*"),
    ),
    # memory
    UnreadEffect(
        "offloading to the host",
        (
            "fine_grained_activation_offloading",
            "offload_modules",
            "offload_optimizer_states",
            "activation_offload_fraction",
        ),
    ),
    UnreadEffect(
        "offloading to the host", ("optimizer_offload_fraction",), neutral=(1,), given="optimizer_cpu_offload"
    ),
    UnreadEffect("offloading to the host", ("cpu_offloading",), unless="cpu_offloading_num_layers"),
    UnreadEffect(
        "offloading to the host",
        ("cpu_optimizer", "cpu_torch_adam", "checkpoint_in_cpu", "remote_device", "use_cpu_offload"),
        neutral=("none",),
    ),
    UnreadEffect(
        "activations are partitioned or tiled",
        (
            "distribute_saved_activations",
            "distribute_checkpointed_activations",
            "partition_activations",
            "mhc_recompute_layer_num",
        ),
    ),
    UnreadEffect("activations are partitioned or tiled", ("checkpoint_num_layers",), neutral=(1,)),
    UnreadEffect(
        "activations are partitioned or tiled",
        ("memory_centric_tiled_linear", "mlp_chunks_for_training", "tile_factor"),
        neutral=(1,),
        given="memory_centric_tiled_linear",
    ),
    UnreadEffect(
        "some steps skip tokens or layers",
        (
            "curriculum_learning*",
            "random_ltd*",
            "data_efficiency_*",
            "progressive_layer_drop",
            "compression_training",
        ),
    ),
)
SMALL: Final = split_names("""
    *_fusion no_*_fusion cross_entropy_fusion_impl moe_permute_fusion_into_hybridep fused_* use_fused_* use_te_activation_func
    use_transformer_engine_op_fuser fp16_lm_cross_entropy attention_softmax_in_fp32 no_position_embedding no_persist_layer_norm
    memory_efficient_layer_norm embed_layernorm extra_vocab_size make_vocab_size_divisible_by
    apply_residual_connection_post_layernorm use_nccl_ub nccl_ub use_sharp sharp_enabled_group nccl_communicator_config_path
    high_priority_* disable_symmetric_registration fsdp_double_buffer fsdp_db_* fsdp_manual_registration
    fsdp_all_gather_in_start_param_sync megatron_fsdp_enable_fine_grained_param_gather megatron_fsdp_max_pool_double_buffer
    megatron_fsdp_version create_all_gather_group reduce_scatter_with_fp32_accumulation
    param_name_patterns_for_fp32_local_accumulation suggested_communication_unit_size ddp_* bucket_size num_buckets
    average_in_collective pad_buckets_* *align_grad_reduce *align_param_gather overlap_param_gather_with_optimizer_step
    delay_wgrad_compute delay_param_gather defer_embedding_wgrad_compute wgrad_deferral_limit overlap_cpu_optimizer_d2h_h2d
    use_torch_optimizer_for_cpu_offload no_pin_cpu_* pin_cpu_* cpu_offloading_* use_pin_memory fine_grained_offloading_*
    min_offloaded_tensor_size delta_offload_bytes_* delay_offload_until_cuda_graph cuda_graph_* tp_comm_overlap_cfg tp_comm_*
    clone_scatter_output_in_embedding no_clone_scatter_output_in_embedding symmetric_ar_type tp_only_amax_red
    no_scatter_gather_tensors_in_pipeline batch_p2p_* use_ring_exchange_p2p pipeline_dtype DDP_impl
    no_contiguous_buffers_in_local_ddp use_contiguous_buffers_in_ddp reset_position_ids
    empty_unused_memory_level te_rng_tracker use_te_rng_tracker moe_deepep_num_sms
    moe_hybridep_* moe_flex_dispatcher_num_sms moe_ncclep_zero_copy moe_router_padding_for_* moe_router_dtype moe_pad_experts_*
    moe_min_capacity disable_moe_token_dropping zero_reduce_scatter zero_contigious_gradients zero_*_bucket_size
    no_pipeline_parallel use_legacy_models use_grouped_gemm_for_* persist_layer_norm no_use_layer_wise_param_layout
    flash_attention_version disable_jit_fuser qk_clip* log_max_attention_logit embedding_weights_in_fp32 output_logit_dtype
    disable_bf16_reduced_precision_matmul disable_parameter_transpose_cache apply_query_key_layer_scaling
    no_query_key_layer_scaling ep_overlap_early_attn_memory_release deallocate_pipeline_outputs store_param_remainders
    params_dtype autocast_dtype enable_autocast grad_reduce_in_fp32 moe_router_type moe_use_grouped_tensor
    moe_single_grouped_bias *glu_interleave_size high_precision_init_val pipeline_model_parallel_comm_backend
""")
HARMLESS: Final = (
    # data, tokenizer, checkpoints, logs, profiles, evaluation
    *split_names("""
        *data_path data_* *_data_path *_path_path dataset* dataloader_* per_*_data_args_path split mock_data
        num_dataset_builder_threads num_workers *tokenizer* vocab_file merge_file vocab_extra_ids tiktoken_* null_tokenizer_*
        special_tokens trust_remote_code chat_template no_mmap_bin_files mmap_warmup create_attention_mask_in_dataloader
        no_create_attention_mask_in_dataloader eod_mask_loss fim_* mask_prob short_seq_prob s3_cache_path
        object_storage_cache_path load load_* save save_* no_load_* no_save_* ckpt_* *_ckpt_* dist_ckpt_* use_dist_ckpt* async_*
        finetune pretrained_checkpoint auto_resume use_checkpoint_* no_ckpt_* non_persistent_* exit_* use_persistent_ckpt_worker
        universal_checkpoint override_* auto_detect_ckpt_format fully_parallel_* *strict_fsdp_dtensor_load log_* no_log_*
        logging_level tensorboard_* wandb_* use_wandb one_logger* no_one_logger enable_one_logger codecarbon_dir otel_*
        timing_log_* filter_warnings profile* use_pytorch_profiler use_nsys_profiler pytorch_profiler_* nvtx_ranges
        record_memory_history memory_snapshot_path record_shapes config_logger_dir runtime_time_unit eval_* full_validation
        multiple_validation_sets start_eval_at_iter validation_set_names skip_train train_mode run_workload_inspector_server
        flight_recorder_* straggler_* disable_straggler_on_startup enable_ft_package ft_* calc_ft_timeouts inprocess_*
        adlr_autoresume* rerun_mode error_injection_* check_* no_check_* barrier_with_level_1_timing
        no_barrier_with_level_1_timing gpu_sniff_test_interval enable_msc disable_msc app_tag_run_*
        dump_param_to_param_group_map *_bank_dir
    """),
    # length of the run, learning rate, initial values, loss
    *split_names("""
        train_iters train_samples train_tokens train_sync_interval iterations_to_skip rampup_batch_size step_batch_size_schedule
        decrease_batch_size_if_needed iter_per_epoch lr lr_* min_lr decoupled_* warmup use_warmup *weight_decay* wd_incr_steps
        wsd_* adam_* adam*_beta* sgd_momentum muon_* adaptive_muon_* lion_beta* soap_* head_lr_mult clip_grad loss_scale
        loss_scale_window initial_loss_scale min_loss_scale hysteresis grad_norm_skip_threshold seed data_parallel_random_init
        init_* embedding_init_method* *initialization output_layer_init_method use_mup mup_* norm_epsilon layernorm_epsilon
        apply_layernorm_1p layernorm_zero_centered_gamma softmax_scale glu_linear_offset rotary_* rope_* use_rope_scaling
        no_rope_freq *mscale* yarn_* no_yarn_* beta_fast beta_slow original_max_position_embeddings mrope_section
        relative_attention_* calculate_per_token_loss mtp_loss_scaling_factor mtp_detach_heads activation_func_clamp_value
        manual_gc* no_manual_gc_eval no_weight_decay_cond_type fp8_amax_* fp8_margin fp8_interval fp8_param openai_gelu
        onnx_safe apply_wd_to_qk_layernorm enable_experimental sft_* sft cache_mla_latents *_load_dir
    """),
    # where tokens go, which is taken to be balanced
    *split_names("""
        moe_aux_loss_coeff moe_loss_coeff moe_z_loss_coeff moe_router_load_balancing_type moe_router_force_*
        moe_router_score_function moe_router_pre_softmax moe_router_topk_scaling_factor moe_router_num_groups
        moe_router_group_topk moe_router_topk_limited_devices moe_router_enable_expert_bias moe_router_bias_update_rate
        moe_router_quantile_* moe_token_drop_policy moe_token_dropping moe_input_jitter_eps moe_apply_probs_on_input
        moe_per_layer_logging moe_eval_capacity_factor moe_enable_routing_replay moe_routing_trace_* create_moe_param_group
    """),
    # what the prediction takes for granted
    *split_names("""
        overlap_grad_reduce overlap_param_gather overlap_p2p_communication moe_grouped_gemm fp8_param_gather use_mcore_models
        deepspeed_activation_checkpointing init_model_with_meta_device scaled_upper_triang_masked_softmax_fusion
        use_distributed_optimizer_* high_precision_*
    """),
    # launchers and other commands of a script
    *split_names("""
        master_addr master_port node_rank machine_rank local_rank rdzv_* tee max_restarts redirects standalone
        distributed_backend distributed_timeout_* local_addr num_nodes num_gpus hostfile include exclude force_multi launcher
        no_python module bind_cores_to_rank lazy_mpu_init use_gloo_process_groups disable_gloo_process_groups container_*
        cpus_per_task gres mem mem_bind membind cpu_bind time partition account qos reservation exclusive job_name jobname jobid
        output error wait kill_on_bad_exit mpi network export ntasks nodelist dependency signal open_mode capture_range* trace
        force_overwrite exclude_from verify sample cuda_memory_usage help rm volume shm_size ulimit ipc privileged user workdir
        no_container_* unbuffered label environment address trigger_path abort_on_unmet_fused_kernel_constraints
        output_meg_ds_ratio_file *_split_paths_path *_ratios_path patch_tokenizer_type max_padding_length tokenizer_name_or_path
        replication* inference_* use_cpu_initialization use_gpu_initialization legacy_tokenizer test_mode metadata_path
        set_level_for_all_loggers throughput_window_size hash_data_path renormalize_blend_weights verify_integrity most_recent_k
        phase_transition_iterations distrib_optim_* no_data_sharding use_tokenizer_model_* no_use_tokenizer_model_*
        use_same_sampling_seed_*
    """),
)
READ_BY_FLAGS: Final = (  # settings of DeepSpeed's configuration that Megatron-DeepSpeed's flags give as well
    *(
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "zero_optimization.stage",
    ),
    *("fp16.enabled", "bf16.enabled", "data_types.grad_accum_dtype"),
)


def _of_written_file(row: UnreadEffect) -> UnreadEffect:
    """Return an effect of DeepSpeed's configuration for a file that the script itself writes."""
    given = row.given and f"deepspeed_config.{row.given}"
    return replace(row, names=tuple(f"deepspeed_config.{name}" for name in row.names), given=given)


def _in_any_section(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names, and the same names in any section."""
    return (*names, *(f"*.{name}" for name in names))


OFFLOADED: Final = tuple(f"zero_optimization.offload_{part}.device" for part in ("optimizer", "param"))
MEGATRON: Final = UnreadRules(
    (
        *UNREAD_EFFECTS,
        *map(
            _of_written_file,
            (*DEEPSPEED.matter, UnreadEffect("offloading to the host", OFFLOADED, neutral=("none",))),
        ),
    ),
    (*SMALL, *(f"deepspeed_config.{name}" for name in DEEPSPEED.small)),
    (*HARMLESS, *(f"deepspeed_config.{name}" for name in (*DEEPSPEED.harmless, *READ_BY_FLAGS))),
)


BRIDGE: Final = UnreadRules(
    tuple(replace(effect, names=_in_any_section(effect.names)) for effect in UNREAD_EFFECTS),
    _in_any_section(SMALL),
    (
        *_in_any_section(HARMLESS),
        "logger.*",
        "checkpoint.*",
        "dataset.*",
        "tokenizer.*",
        "rng.*",
        "profiling.*",
        "scheduler.*",
        "validation.*",
        "recipe",
    ),
)
