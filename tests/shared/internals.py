"""Internal names that tests use beside public ones: the one place to change when code moves."""

from importlib import import_module

PLACES = {
    "analyses.anatomy": "stages",
    "analyses.base": "GROUPS",
    "analyses.features.attribution": (
        "GRADIENT_ACTIVATION GRAD_CAM RANDOM blurred faithfulness gradient_maps ranks"
    ),
    "analyses.features.block_structure": "block_structure",
    "analyses.features.intrinsic_dimension": "save_features twonn_dimension",
    "analyses.features.patch_pca": "principal_scores",
    "analyses.features.readout": (
        "folds lens_blocks lens_predictions neighbor_predictions ridge_predictions"
    ),
    "analyses.features.token_norms": "PROBABILITIES",
    "analyses.features.token_similarity": "SERIES",
    "analyses.loss.mode_connectivity": "mode_connectivity",
    "analyses.pictures": "picture_columns",
    "analyses.predictions.attacks": (
        "AttackLoss PerturbationBall attack_images auto_pgd checkpoints other_classes"
    ),
    "analyses.predictions.bands": (
        "BAND_CENTERS band basis_image filtered paper_band radius with_rms"
    ),
    "analyses.predictions.corruptions": "ALEXNET CLEAN",
    "analyses.predictions.distribution_shift": "ShiftedImages distribution_shift",
    "analyses.predictions.error_consistency": "differing_pictures error_consistency",
    "analyses.predictions.out_of_distribution": (
        "ENERGY MAHALANOBIS MAX_LOGIT MSP NEIGHBOR auroc false_positives scores"
    ),
    "analyses.predictions.shape_bias": "SIXTEEN",
    "analyses.predictions.stability": "relative_flip_rates",
    "analyses.predictions.temperature": "temperature_if_finite",
    "anatomy.run.ablations": (
        "block_ablations combine_ablations convolutional_blocks inner_blocks quantized "
        "replaced_ablation weights_of"
    ),
    "anatomy.run.cached_forward": "cache_cuts can_start_at",
    "anatomy.run.replaced_parts": "convolution_parts head_parts",
    "anatomy.run.surgery": "watch_tokens",
    "app.forms": "Form named",
    "app.library": "Library",
    "app.settings": "Settings",
    "cli.catalog": "read_catalog",
    "cli.parser": "command_parser commands help_text parse",
    "cli.studies": "SHIPPED",
    "core.devices": "BatchNormOfXla delayed_interrupts set_products settings_of_products",
    "core.errors": "OutputError",
    "core.files": "atomic_write output_folder read_json write_text",
    "core.options": "EFFORTS check_options option_values options_of",
    "core.processes": "RankSlice gather rank share world_size",
    "core.provenance": "revision",
    "core.registry": "Registry load_plugins",
    "core.run": "DEFAULT_RUN stream",
    "drawing.losses": "CHANCE_POSITION LossScale",
    "drawing.registry": "frame_of load_figures",
    "drawing.save": "render_figure render_formats settle_layout",
    "drawing.style": (
        "ATTENTION_SHADE DEPTH FAINT KIND_COLORS SIMILARITY SUBSAMPLING_SHADE color_of "
        "model_axes paper_style tip"
    ),
    "drawing.text": "caption inches title",
    "estimates.answers": "DISAGREE difference",
    "estimates.calibration_error": "Bins calibration_error",
    "estimates.eigenvalues": "negative_proportion",
    "estimates.estimated": "Estimated Number mean stacked",
    "estimates.findings": "CODES at_chance",
    "estimates.questions": "PAPER_CLAIMS QUESTIONS Question",
    "estimates.text": "interval_text",
    "harmonize.alternet": "save_alternet",
    "harmonize.blocks": "select_blocks",
    "harmonize.replacement_search": "paired_gain",
    "harmonize.search": "SearchLog is_significant",
    "images.augmentation": "STRONG STRONG_LARGE",
    "images.augmented": "Mix batch_share cut draw_mix mixed shifted soft",
    "images.corruptions.blur": "copied_from",
    "images.corruptions.corrupt": "COMMON EXTRA Randomness",
    "images.corruptions.filters": "motion_taps rotated tilted",
    "images.corruptions.sequences": "PERTURBATIONS sequence",
    "images.corruptions.severities": "severity_parameters table_for",
    "images.corruptions.weather": "edges ice plasma",
    "images.image_set": "NO_CLASS balanced held_out",
    "images.images": "ordered tensor_images to_pixels",
    "images.pixels": "center_crop decode fault normalized to_rgb",
    "images.shapes": "SILHOUETTES TEXTURES",
    "images.stored": "stored_conditions",
    "loss.density": "hutchinson hutchpp quadrature",
    "loss.directions": "gaussian",
    "loss.double_backward": "differentiable",
    "loss.points": "read_samples reestimate",
    "loss.products": "Products gauss_newton_product hvp",
    "loss.rings": "crossed_mean",
    "loss.update_rules": "sam_threshold update_rule",
    "models.attention_as_convolution": "largest_difference",
    "models.checkpoints": "Metadata",
    "models.data_configs": "preprocessing_from",
    "models.layers.heads": "AttentionPool",
    "models.layers.residual_blocks": (
        "MSABlock PostActMSABlock PreActBasic PreActBottleneck SpatialSmoothing"
    ),
    "models.layers.window_attention": "WindowAttention",
    "models.pretrained": "default_card epochs_in_words pretrained_cards",
    "models.sources": "stored_model_name",
    "models.spec": "ModelSpec",
    "models.state_dicts": "read_state_dict",
    "models.timm_entries": "PREFIX",
    "models.zoo.alter_resnet": "alter_resnet",
    "models.zoo.conv_vit": "LocalAttention",
    "models.zoo.mixer": "mixer",
    "models.zoo.pit": "pit",
    "models.zoo.preact_resnet": "preact_resnet",
    "models.zoo.sasa_resnet": "NeighborhoodAttention",
    "models.zoo.swin": "ShiftedWindowAttention swin",
    "models.zoo.vit": "deit vit",
    "models.zoo_registry": "image_size",
    "passes.ablated": "ablated_outcomes",
    "passes.batches": "in_order",
    "passes.features": "Gathered blocks_off_grid observations observing",
    "passes.forward_passes": "model_cost",
    "passes.perturbed": "PixelSpace evaluate_perturbed",
    "passes.pooled": "PooledFeatures halves pooled_features",
    "passes.predict": "dropout_modules",
    "passes.sources": "residual_branches",
    "passes.tokens": "Tokens token_roles",
    "report.drawings": "drawings rendered",
    "report.page": "inline_svg style_sheet",
    "report.tables": "MINUS amount table_of",
    "report.terms": "TermLinks",
    "study.alarms": "alarms_of",
    "study.console": "TimeLeft",
    "study.evolve": "joined",
    "study.identity": "code_of fingerprint_of",
    "study.exports": "json_of",
    "study.files": "write_files write_report",
    "report.glance": "MIXED TIE UNKNOWN glance_of glance_text sentences_of",
    "study.plan": "Speed number_of_images ordered_steps",
    "study.report_content": "content_of",
    "study.study": "FROM_PYTHON",
    "study.study_file": "STUDY_FILE",
    "analyses.subjects": "candidates_of images_of subject_of subjects_of",
    "report.rows": "DASH Difference Row comparison_rows",
    "table.kinds": "ABSOLUTE SCALE_FREE TO_LOWEST TO_MEAN VARIANCE replicate_by_kind",
    "training.checkpoint_files": "read_checkpoint valid_checkpoint write_checkpoint",
    "training.checkpointer": "Checkpointer",
    "training.engine": "has_unused_parameters",
    "training.loggers": "TensorBoardLogger log_arrays make_loggers",
    "training.losses": "distillation_loss task_loss",
    "training.optimizers": "decay_groups learning_rate make_optimizers sam_displaced sam_step",
    "training.recipe_files": "as_yaml read_recipe recipe_fields recipe_from_fields",
}


def __getattr__(name):
    for module, names in PLACES.items():
        if name in names.split():
            return getattr(import_module(f"visprism.{module}"), name)
    raise AttributeError(name)
