# ruff: noqa: I001 (grouped by topic; docs/reference.md has the same groups)

# Studies.
from visprism.study.record import Entry as Entry
from visprism.study.record import Failure as Failure
from visprism.study.record import ModelStudy as ModelStudy
from visprism.study.plan import Plan as Plan
from visprism.study.plan import Step as Step
from visprism.study.study import Study as Study
from visprism.study.examine import examine as examine
from visprism.study.events import Finished as Finished
from visprism.study.events import Planned as Planned
from visprism.study.events import Started as Started
from visprism.study.events import Stopped as Stopped
from visprism.study.evolve import evolve as evolve
from visprism.study.monitor import Monitor as Monitor
from visprism.one_image.look import Look as Look
from visprism.one_image.look import look as look
from visprism.training.vitals import Alarm as Alarm
from visprism.training.vitals import TrainingStoppedError as TrainingStoppedError
from visprism.core.request import DataOptions as DataOptions

# How anything is measured.
from visprism.core.devices import Compute as Compute
from visprism.core.errors import InputError as InputError
from visprism.core.preprocessing import Preprocessing as Preprocessing
from visprism.core.processes import processes as processes
from visprism.core.provenance import Provenance as Provenance
from visprism.core.run import Progress as Progress
from visprism.core.run import Run as Run
from visprism.core.run import TimeBudgetError as TimeBudgetError

# Analyses: what a new one is made of.
from visprism import kit as kit
from visprism.kit.analysis import ANALYSES as ANALYSES
from visprism.kit.analysis import Analysis as Analysis
from visprism.kit.needs import Cost as Cost
from visprism.kit.analysis import FeatureAnalysis as FeatureAnalysis
from visprism.kit.needs import Needs as Needs
from visprism.table.section import Section as Section
from visprism.kit.needs import Sizes as Sizes
from visprism.kit.model_on_images import Measured as Measured
from visprism.kit.model_on_images import Subject as Subject
from visprism.core.options import option as option

# Analyses; `vp.analyses` has every one, also `Anatomy`, `Attention` and analyses of plug-ins.
from visprism import analyses as analyses
from visprism.analyses.predictions.ablation import Ablation as Ablation
from visprism.analyses.predictions.adversarial import Adversarial as Adversarial
from visprism.analyses.attention.attention_maps import AttentionMaps as AttentionMaps
from visprism.analyses.features.attribution import Attribution as Attribution
from visprism.analyses.features.band_energy import BandEnergy as BandEnergy
from visprism.analyses.features.branch_transfer import BranchTransfer as BranchTransfer
from visprism.analyses.predictions.calibration import Calibration as Calibration
from visprism.analyses.features.cka import CKA as CKA
from visprism.analyses.features.class_separability import ClassSeparability as ClassSeparability
from visprism.analyses.predictions.corruptions import Corruptions as Corruptions
from visprism.analyses.loss.density import Density as Density
from visprism.analyses.features.feature_similarity import FeatureSimilarity as FeatureSimilarity
from visprism.analyses.predictions.distribution_shift import (
    DistributionShift as DistributionShift,
)
from visprism.analyses.features.fourier import Fourier as Fourier
from visprism.analyses.features.fourier_plane import FourierPlane as FourierPlane
from visprism.analyses.predictions.fourier_sensitivity import (
    FourierSensitivity as FourierSensitivity,
)
from visprism.analyses.predictions.frequency_noise import FrequencyNoise as FrequencyNoise
from visprism.analyses.loss.hessian import Hessian as Hessian
from visprism.analyses.loss.hessian_by_block import HessianByBlock as HessianByBlock
from visprism.analyses.features.intrinsic_dimension import (
    IntrinsicDimension as IntrinsicDimension,
)
from visprism.analyses.loss.landscape import Landscape as Landscape
from visprism.analyses.loss.mode_connectivity import ModeConnectivity as ModeConnectivity
from visprism.analyses.predictions.out_of_distribution import (
    OutOfDistribution as OutOfDistribution,
)
from visprism.analyses.weights.patch_filters import PatchFilters as PatchFilters
from visprism.analyses.features.patch_pca import PatchPCA as PatchPCA
from visprism.analyses.weights.position_embeddings import (
    PositionEmbeddings as PositionEmbeddings,
)
from visprism.analyses.predictions.quantization import Quantization as Quantization
from visprism.analyses.features.readout import Readout as Readout
from visprism.analyses.features.receptive_field import ReceptiveField as ReceptiveField
from visprism.analyses.weights.relative_scores import RelativeScores as RelativeScores
from visprism.analyses.predictions.shape_bias import ShapeBias as ShapeBias
from visprism.analyses.loss.sharpness import Sharpness as Sharpness
from visprism.analyses.features.singular_values import SingularValues as SingularValues
from visprism.analyses.predictions.stability import Stability as Stability
from visprism.analyses.features.token_norms import TokenNorms as TokenNorms
from visprism.analyses.features.token_similarity import TokenSimilarity as TokenSimilarity
from visprism.analyses.loss.training_curvature import TrainingCurvature as TrainingCurvature
from visprism.analyses.loss.trajectory import Trajectory as Trajectory
from visprism.analyses.features.variance import Variance as Variance

# Models.
from visprism.models.zoo_registry import MODELS as MODELS
from visprism.models.loading import LoadedModel as LoadedModel
from visprism.models.checkpoints import load_checkpoint as load_checkpoint
from visprism.models.loading import load_model as load_model
from visprism.models.checkpoints import read_metadata as read_metadata
from visprism.models.checkpoints import save_checkpoint as save_checkpoint
from visprism.models.attention_as_convolution import attention_from_convolution as attention_from_convolution  # noqa: E501  # fmt: skip

# Images.
from visprism.images.image_set import DATA as DATA
from visprism.images.augmentation import Augmentation as Augmentation
from visprism.images.batches import Batches as Batches
from visprism.images.training_batches import Feed as Feed
from visprism.images.image_set import ImageSet as ImageSet
from visprism.images.batches import batches as batches
from visprism.images.open_data import image_set as image_set
from visprism.images.open_data import load_data as load_data
from visprism.images.pixels import in_memory as in_memory
from visprism.images.training_batches import loader_feed as loader_feed
from visprism.images.training_batches import memory_feed as memory_feed
from visprism.images.image_set import statistics as statistics
from visprism.images.image_set import stratified as stratified
from visprism.images.corruptions.corrupt import CORRUPTIONS as CORRUPTIONS
from visprism.images.corruptions.corrupt import corrupt as corrupt
from visprism.images.batches import fixed_augmentation as fixed_augmentation

# Blocks of a model.
from visprism.anatomy.blocks.anatomy import Anatomy as Anatomy
from visprism.anatomy.blocks.attention import Attention as Attention
from visprism.anatomy.blocks.anatomy import Block as Block
from visprism.anatomy.trace.token_positions import Layout as Layout
from visprism.anatomy.blocks.attention import Weights as Weights
from visprism.anatomy.run.surgery import ablate as ablate
from visprism.anatomy.run.attention_weights import attend as attend
from visprism.anatomy.blocks.attention import attentions as attentions
from visprism.anatomy.blocks.anatomy import costs as costs
from visprism.anatomy.blocks.dissect import dissect as dissect
from visprism.anatomy.trace.forward import forward as forward
from visprism.anatomy.blocks.layers import layers as layers
from visprism.anatomy.run.surgery import replace as replace
from visprism.anatomy.run.surgery import watch as watch

# Measurements of feature maps and attention.
from visprism.passes.statistic import FeatureStatistic as FeatureStatistic
from visprism.passes.statistic import PassResult as PassResult
from visprism.passes.features import observations as observations
from visprism.passes.features import observe as observe
from visprism.analyses.attention.attention_maps import attention_maps as attention_maps
from visprism.analyses.attention.attention_maps import rollout as rollout
from visprism.analyses.features.cka import compare as compare
from visprism.passes.blocks import block_columns as block_columns

# Measurements of weights.
from visprism.analyses.weights.patch_filters import patch_filters as patch_filters
from visprism.analyses.weights.position_embeddings import (
    positional_similarity as positional_similarity,
)
from visprism.analyses.weights.relative_scores import relative_scores as relative_scores
from visprism.analyses.weights.relative_scores import relative_score_tables as relative_score_tables  # noqa: E501  # fmt: skip

# Measurements of the loss.
from visprism.loss.objective import Objective as Objective
from visprism.loss.objective import Selection as Selection
from visprism.loss.objective import cross_entropy as cross_entropy
from visprism.loss.training_curvature import training_curvature as training_curvature
from visprism.loss.spectrum import hessian_spectrum as hessian_spectrum
from visprism.analyses.loss.density import spectral_density as spectral_density
from visprism.loss.eigenvalues import top_eigenpairs as top_eigenpairs
from visprism.loss.eigenvalues import top_eigenvalues as top_eigenvalues
from visprism.analyses.loss.density import trace as trace
from visprism.loss.planes import Plane as Plane
from visprism.loss.landscape import landscape as landscape
from visprism.loss.planes import plane_along as plane_along
from visprism.loss.planes import principal_plane as principal_plane
from visprism.loss.planes import project as project
from visprism.loss.planes import random_planes as random_planes
from visprism.loss.loss_by_distance import loss_by_distance as loss_by_distance
from visprism.analyses.loss.trajectory import trajectory as trajectory

# Measurements of outputs.
from visprism.analyses.predictions.attacks import Attack as Attack
from visprism.passes.averaged import Ensemble as Ensemble
from visprism.passes.averaged import MonteCarloDropout as MonteCarloDropout
from visprism.passes.predictions import Predictions as Predictions
from visprism.analyses.predictions.adversarial import adversarial as adversarial
from visprism.analyses.predictions.shape_bias import by_category as by_category
from visprism.analyses.predictions.calibration import calibration as calibration
from visprism.analyses.predictions.shape_bias import classes_of as classes_of
from visprism.passes.outcomes import outcomes as outcomes
from visprism.passes.predict import predict as predict
from visprism.analyses.predictions.calibration import reliability as reliability
from visprism.analyses.predictions.confusions import accuracy_by_class as accuracy_by_class
from visprism.analyses.predictions.calibration import risk_coverage as risk_coverage
from visprism.analyses.predictions.corruptions import robustness as robustness
from visprism.analyses.predictions.shape_bias import shape_bias as shape_bias
from visprism.analyses.predictions.stability import stability as stability
from visprism.analyses.predictions.temperature import temperature as temperature

# Results: the base, and what a new type is made of; `vp.results` has every type.
from visprism import results as results
from visprism.estimates.answers import Answer as Answer
from visprism.table.result import ColumnInfo as ColumnInfo
from visprism.table.result import Result as Result
from visprism.table.result import Texts as Texts
from visprism.table.result import column as column
from visprism.table.result import estimate as estimate
from visprism.table.result import result_type as result_type
from visprism.table.result import scalar as scalar
from visprism.estimates.findings import Finding as Finding
from visprism.table.shapes import BlockMatrix as BlockMatrix
from visprism.table.shapes import Curve as Curve
from visprism.table.shapes import Pictures as Pictures
from visprism.table.shapes import ScalarPerBlock as ScalarPerBlock
from visprism.table.shapes import SeriesPerBlock as SeriesPerBlock
from visprism.table.shapes import Surface as Surface
from visprism.table.shapes import result_shape as result_shape

# Figures.
from visprism.drawing.registry import figure as figure
from visprism.drawing.panel import panel as panel
from visprism.drawing.registry import plot as plot
from visprism.drawing.save import save_figure as save_figure

# Training.
from visprism.harmonize.convert import MSAConfig as MSAConfig
from visprism.harmonize.blocks import conv_blocks as conv_blocks
from visprism.harmonize.convert import harmonize_model as harmonize_model
from visprism.harmonize.search import search_by_recipe as search_by_recipe
from visprism.harmonize.search import search_replacements as search_replacements
from visprism.training.recipe import RECIPES as RECIPES
from visprism.training.history import History as History
from visprism.training.job import Job as Job
from visprism.training.recipe import Recipe as Recipe
from visprism.training.loop import fit as fit
from visprism.training.recipe import load_recipe as load_recipe
from visprism.training.job import train as train

# Checks for new analyses.
from visprism.testing import assert_results_equal as assert_results_equal
from visprism.testing import check_statistic as check_statistic
from visprism.testing import check_unchanged as check_unchanged
