# ruff: noqa: I001 (grouped by topic; docs/reference.md has the same groups)

# Studies.
from visprism.study import Entry as Entry
from visprism.study import Failure as Failure
from visprism.study import ModelStudy as ModelStudy
from visprism.study import Plan as Plan
from visprism.study import Step as Step
from visprism.study import Study as Study
from visprism.study import examine as examine
from visprism.study.events import Finished as Finished
from visprism.study.events import Planned as Planned
from visprism.study.events import Started as Started
from visprism.study.events import Stopped as Stopped
from visprism.study.subjects import DataOptions as DataOptions

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
from visprism.analyses import ANALYSES as ANALYSES
from visprism.analyses.base import Analysis as Analysis
from visprism.analyses.base import Cost as Cost
from visprism.analyses.base import FeatureAnalysis as FeatureAnalysis
from visprism.analyses.base import Needs as Needs
from visprism.analyses.base import Section as Section
from visprism.analyses.base import Sizes as Sizes
from visprism.analyses.subject import Measured as Measured
from visprism.analyses.subject import Subject as Subject
from visprism.core.options import option as option

# Analyses; `vp.analyses` has every one, also `Anatomy`, `Attention` and those of plug-ins.
from visprism import analyses as analyses
from visprism.analyses.ablation import Ablation as Ablation
from visprism.analyses.adversarial import Adversarial as Adversarial
from visprism.analyses.attention_maps import AttentionMaps as AttentionMaps
from visprism.analyses.attribution import Attribution as Attribution
from visprism.analyses.band_energy import BandEnergy as BandEnergy
from visprism.analyses.branch_transfer import BranchTransfer as BranchTransfer
from visprism.analyses.calibration import Calibration as Calibration
from visprism.analyses.cka import CKA as CKA
from visprism.analyses.class_separability import ClassSeparability as ClassSeparability
from visprism.analyses.corruptions import Corruptions as Corruptions
from visprism.analyses.density import Density as Density
from visprism.analyses.feature_similarity import FeatureSimilarity as FeatureSimilarity
from visprism.analyses.distribution_shift import DistributionShift as DistributionShift
from visprism.analyses.fourier import Fourier as Fourier
from visprism.analyses.fourier_plane import FourierPlane as FourierPlane
from visprism.analyses.fourier_sensitivity import FourierSensitivity as FourierSensitivity
from visprism.analyses.frequency_noise import FrequencyNoise as FrequencyNoise
from visprism.analyses.hessian import Hessian as Hessian
from visprism.analyses.hessian_by_block import HessianByBlock as HessianByBlock
from visprism.analyses.intrinsic_dimension import IntrinsicDimension as IntrinsicDimension
from visprism.analyses.landscape import Landscape as Landscape
from visprism.analyses.mode_connectivity import ModeConnectivity as ModeConnectivity
from visprism.analyses.out_of_distribution import OutOfDistribution as OutOfDistribution
from visprism.analyses.patch_filters import PatchFilters as PatchFilters
from visprism.analyses.patch_pca import PatchPCA as PatchPCA
from visprism.analyses.position_embeddings import PositionEmbeddings as PositionEmbeddings
from visprism.analyses.quantization import Quantization as Quantization
from visprism.analyses.readout import Readout as Readout
from visprism.analyses.receptive_field import ReceptiveField as ReceptiveField
from visprism.analyses.relative_scores import RelativeScores as RelativeScores
from visprism.analyses.shape_bias import ShapeBias as ShapeBias
from visprism.analyses.sharpness import Sharpness as Sharpness
from visprism.analyses.singular_values import SingularValues as SingularValues
from visprism.analyses.stability import Stability as Stability
from visprism.analyses.token_norms import TokenNorms as TokenNorms
from visprism.analyses.token_similarity import TokenSimilarity as TokenSimilarity
from visprism.analyses.training_curvature import TrainingCurvature as TrainingCurvature
from visprism.analyses.trajectory import Trajectory as Trajectory
from visprism.analyses.variance import Variance as Variance

# Models.
from visprism.models import MODELS as MODELS
from visprism.models import LoadedModel as LoadedModel
from visprism.models import load_checkpoint as load_checkpoint
from visprism.models import load_model as load_model
from visprism.models import read_metadata as read_metadata
from visprism.models import save_checkpoint as save_checkpoint
from visprism.models.attention_as_convolution import attention_from_convolution as attention_from_convolution  # noqa: E501  # fmt: skip

# Images.
from visprism.images import DATA as DATA
from visprism.images import Augmentation as Augmentation
from visprism.images import Batches as Batches
from visprism.images import Feed as Feed
from visprism.images import ImageSet as ImageSet
from visprism.images import batches as batches
from visprism.images import load_data as load_data
from visprism.images import loader_feed as loader_feed
from visprism.images import memory_feed as memory_feed
from visprism.images import statistics as statistics
from visprism.images import stratified as stratified
from visprism.images.corruptions import CORRUPTIONS as CORRUPTIONS
from visprism.images.corruptions import corrupt as corrupt
from visprism.images import fixed_augmentation as fixed_augmentation

# Blocks of a model.
from visprism.anatomy import Anatomy as Anatomy
from visprism.anatomy import Attention as Attention
from visprism.anatomy import Block as Block
from visprism.anatomy import Layout as Layout
from visprism.anatomy import Weights as Weights
from visprism.anatomy import ablate as ablate
from visprism.anatomy import attend as attend
from visprism.anatomy import attentions as attentions
from visprism.anatomy import costs as costs
from visprism.anatomy import dissect as dissect
from visprism.anatomy import forward as forward
from visprism.anatomy import layers as layers
from visprism.anatomy import replace as replace
from visprism.anatomy import watch as watch

# Measurements of feature maps and attention.
from visprism.measure.features import AttentionProbe as AttentionProbe
from visprism.measure.features import BandEnergyProbe as BandEnergyProbe
from visprism.measure.features import BranchTransferProbe as BranchTransferProbe
from visprism.measure.features import CKAProbe as CKAProbe
from visprism.measure.features import FourierPlaneProbe as FourierPlaneProbe
from visprism.measure.features import FourierProbe as FourierProbe
from visprism.measure.features import Probe as Probe
from visprism.measure.features import SingularValueProbe as SingularValueProbe
from visprism.measure.features import TokenNormProbe as TokenNormProbe
from visprism.measure.features import TokenSimilarityProbe as TokenSimilarityProbe
from visprism.measure.features import VarianceProbe as VarianceProbe
from visprism.measure.features import attention_maps as attention_maps
from visprism.measure.features import compare as compare
from visprism.measure.features import observe as observe
from visprism.measure.features import receptive_field as receptive_field
from visprism.measure.features import rollout as rollout
from visprism.measure.features.per_block import block_columns as block_columns

# Measurements of weights.
from visprism.measure.weights import patch_filters as patch_filters
from visprism.measure.weights import positional_similarity as positional_similarity
from visprism.measure.weights import relative_scores as relative_scores

# Measurements of the loss.
from visprism.loss.objective import Objective as Objective
from visprism.loss.parameter_selection import Selection as Selection
from visprism.loss.objective import cross_entropy as cross_entropy
from visprism.loss.sharpness import mini_batch_sharpness as mini_batch_sharpness
from visprism.loss.sharpness import sharpness as sharpness
from visprism.loss.objective import smoothed_cross_entropy as smoothed_cross_entropy
from visprism.loss.monitor import CurvatureMonitor as CurvatureMonitor
from visprism.loss.by_block import hessian_by_block as hessian_by_block
from visprism.loss.spectrum import hessian_spectrum as hessian_spectrum
from visprism.loss.density import spectral_density as spectral_density
from visprism.loss.spectrum import top_eigenpairs as top_eigenpairs
from visprism.loss.spectrum import top_eigenvalues as top_eigenvalues
from visprism.loss.density import trace as trace
from visprism.loss.planes import Plane as Plane
from visprism.loss.landscape import curvature_at_origin as curvature_at_origin
from visprism.loss.landscape import landscape as landscape
from visprism.loss.planes import plane_along as plane_along
from visprism.loss.planes import plane_through as plane_through
from visprism.loss.planes import principal_plane as principal_plane
from visprism.loss.planes import project as project
from visprism.loss.planes import random_planes as random_planes
from visprism.loss.landscape import rings as rings
from visprism.loss.planes import trajectory as trajectory

# Measurements of outputs.
from visprism.measure.outputs import Attack as Attack
from visprism.measure.outputs import Predictions as Predictions
from visprism.measure.outputs import ablation as ablation
from visprism.measure.outputs import adversarial as adversarial
from visprism.measure.outputs import by_category as by_category
from visprism.measure.outputs import calibration as calibration
from visprism.measure.outputs import classes_of as classes_of
from visprism.measure.outputs import fourier_sensitivity as fourier_sensitivity
from visprism.measure.outputs import frequency_noise as frequency_noise
from visprism.measure.outputs import outcomes as outcomes
from visprism.measure.outputs import predict as predict
from visprism.measure.outputs import reliability as reliability
from visprism.measure.outputs import risk_coverage as risk_coverage
from visprism.measure.outputs import robustness as robustness
from visprism.measure.outputs import shape_bias as shape_bias
from visprism.measure.outputs import stability as stability
from visprism.measure.outputs import temperature as temperature

# Results: the base, and what a new type is made of; `vp.results` has every type.
from visprism import results as results
from visprism.results.answers import Answer as Answer
from visprism.results.base import ColumnInfo as ColumnInfo
from visprism.results.base import Result as Result
from visprism.results.base import column as column
from visprism.results.base import result_type as result_type
from visprism.results.base import scalar as scalar
from visprism.results.findings import Finding as Finding
from visprism.results.shapes import BlockMatrix as BlockMatrix
from visprism.results.shapes import Curve as Curve
from visprism.results.shapes import Pictures as Pictures
from visprism.results.shapes import QuantilesPerBlock as QuantilesPerBlock
from visprism.results.shapes import ScalarPerBlock as ScalarPerBlock
from visprism.results.shapes import SeriesPerBlock as SeriesPerBlock
from visprism.results.shapes import Surface as Surface
from visprism.results.shapes import result_shape as result_shape
from visprism.results.differences import Differences as Differences
from visprism.results.per_image import PerImage as PerImage

# Figures.
from visprism.figures import figure as figure
from visprism.figures import panel as panel
from visprism.figures import plot as plot
from visprism.figures import save_figure as save_figure

# Training.
from visprism.harmonize import MSAConfig as MSAConfig
from visprism.harmonize import conv_blocks as conv_blocks
from visprism.harmonize import harmonize_model as harmonize_model
from visprism.harmonize import search_by_recipe as search_by_recipe
from visprism.harmonize import search_replacements as search_replacements
from visprism.training import RECIPES as RECIPES
from visprism.training import Job as Job
from visprism.training import Recipe as Recipe
from visprism.training import fit as fit
from visprism.training import load_recipe as load_recipe
from visprism.training import train as train

# Checks for custom probes and analyses.
from visprism.testing import assert_results_equal as assert_results_equal
from visprism.testing import check_probe as check_probe
from visprism.testing import check_unchanged as check_unchanged
