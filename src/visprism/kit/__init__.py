"""The one import of an analysis, built-in or of a plug-in: ``from visprism import kit``.

An analysis is named values by image, and estimates that state how they reduce::

    @kit.result("hoyer-sparsity", "Sparsity of feature maps")
    class HoyerSparsity(kit.ScalarPerBlock):
        sparsity: kit.Estimated = kit.estimate("Hoyer sparsity", reduce=kit.Reduce.FRACTION)

    @kit.analysis
    class MeasureHoyer(kit.FeatureAnalysis):
        name, gives = "hoyer-sparsity", HoyerSparsity

        def extract(self, x):
            return {"sparsity": ...}  # (images,) for each block

- Declarations: `analysis`, `Analysis`, `FeatureAnalysis`, `option`, `Needs`, `Sizes`, `Cost`,
  `Section`.
- Results: `result`, `Result`, `column`, `scalar`, `estimate`, `Reduce`, `Estimated`, `Number`,
  `Texts`, `Finding`, `POINTS`, `mean`, and the shapes `ScalarPerBlock`, `SeriesPerBlock`,
  `ChangePerBlock`, `PerBlock`, `BlockMatrix`, `Valued`, `Curve`, `Surface`, `Pictures`.
- What an analysis is given: `Subject` (a model on images), `Measured` (with its results),
  `Run`, `DEFAULT_RUN`, `PassResult` (values by image; `Extracts`, `Arrays`), `Anatomy`,
  `Block`, `Attention`, `Tokens`, `Weights`.
- `figure`, `block_columns`, `pair_columns`, `stream` (random numbers), `in_float64`,
  `InputError` and `reason_of_error`.

docs/howto/add-an-analysis.md adds one from start to end.
"""

from visprism.anatomy.blocks.anatomy import Anatomy as Anatomy
from visprism.anatomy.blocks.anatomy import Block as Block
from visprism.anatomy.blocks.attention import Attention as Attention
from visprism.anatomy.blocks.attention import Weights as Weights
from visprism.core.devices import in_float64 as in_float64
from visprism.core.errors import InputError as InputError
from visprism.core.options import option as option
from visprism.core.run import DEFAULT_RUN as DEFAULT_RUN
from visprism.core.run import Run as Run
from visprism.core.run import stream as stream
from visprism.drawing.registry import figure as figure
from visprism.estimates.answers import POINTS as POINTS
from visprism.estimates.estimated import Estimated as Estimated
from visprism.estimates.estimated import Number as Number
from visprism.estimates.estimated import Reduce as Reduce
from visprism.estimates.estimated import mean as mean
from visprism.estimates.findings import Finding as Finding
from visprism.kit.analysis import Analysis as Analysis
from visprism.kit.analysis import FeatureAnalysis as FeatureAnalysis
from visprism.kit.analysis import analysis as analysis
from visprism.kit.analysis import reason_of_error as reason_of_error
from visprism.kit.model_on_images import Measured as Measured
from visprism.kit.model_on_images import Subject as Subject
from visprism.kit.needs import Cost as Cost
from visprism.kit.needs import Needs as Needs
from visprism.kit.needs import Sizes as Sizes
from visprism.passes.blocks import block_columns as block_columns
from visprism.passes.blocks import pair_columns as pair_columns
from visprism.passes.statistic import Arrays as Arrays
from visprism.passes.statistic import Extracts as Extracts
from visprism.passes.statistic import PassResult as PassResult
from visprism.passes.tokens import Tokens as Tokens
from visprism.table.result import Result as Result
from visprism.table.result import Texts as Texts
from visprism.table.result import column as column
from visprism.table.result import estimate as estimate
from visprism.table.result import result as result
from visprism.table.result import scalar as scalar
from visprism.table.section import Section as Section
from visprism.table.shapes import BlockMatrix as BlockMatrix
from visprism.table.shapes import ChangePerBlock as ChangePerBlock
from visprism.table.shapes import Curve as Curve
from visprism.table.shapes import PerBlock as PerBlock
from visprism.table.shapes import Pictures as Pictures
from visprism.table.shapes import ScalarPerBlock as ScalarPerBlock
from visprism.table.shapes import SeriesPerBlock as SeriesPerBlock
from visprism.table.shapes import Surface as Surface
from visprism.table.shapes import Valued as Valued
