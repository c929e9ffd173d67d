"""Topics of the questions that results answer, in the order in which readers ask them.

An estimate states the text of its question (`asks`) and its direction (`better`).
"""

from dataclasses import dataclass, replace
from typing import Literal

OTHER = "other questions"
ROUNDS = "rounds"  # of a timing, whose range an answer has


@dataclass(frozen=True)
class Question:
    """A question about models: one entry of the table of a study.

    Answers of a question that is not declared, such as a plug-in's, come last.
    """

    text: str
    topic: str  # group of the table
    label: str = ""  # of its line at a glance; "" where it has none
    sentence: str = ""  # about the better and the worse of two models
    of: str = ""  # the result that the label is about; "": any
    all_measures: bool = False  # a model is better only if no measure says otherwise
    first_part: bool = False  # of a model is enough at a glance
    with_number: bool = False  # the words at a glance stand with their number
    with_size: bool = False  # the label has the size of an attack, which the quantity states
    better: Literal["", "higher", "lower"] = ""  # as an estimate states; "": a line of words

    def __str__(self) -> str:
        return self.text

    @property
    def of_labels(self) -> bool:
        """Whether labels decide it, which random weights have never seen."""
        topics = ("accuracy", "calibration", "robustness", "importance of blocks")
        return self.topic in topics or self in (DISAGREEMENT, ERRORS, READOUT, COLLAPSE)


ACCURACY = Question(
    "How accurate is the model?",
    "accuracy",
    "accuracy",
    "The accuracy of {better} is {difference} points above the accuracy of {worse}.",
)
LIKELIHOOD = Question(
    "How likely are the targets?",
    "accuracy",
    "NLL",
    "The NLL of {better} is {difference} nats below the NLL of {worse}.",
    of="calibration",
    better="lower",
)
PERFORMANCE = Question("How well does the model do its task?", "accuracy", "performance")
WORST_CLASS = Question(
    "Which class has the lowest accuracy?",
    "accuracy",
    "class with the lowest accuracy (%)",
    first_part=True,
)

CALIBRATION = Question(
    "Is the model calibrated?",
    "calibration",
    "calibration error",
    "The calibration error of {worse} is {difference} points larger than {better}'s.",
    of="calibration",
)
SCALED = Question(
    "How well is the model calibrated after temperature scaling?",
    "calibration",
    "calibration error after temperature scaling (%)",
)
CONFIDENCE = Question("Is the model over- or underconfident?", "calibration", "confidence")
TEMPERATURE = Question(
    "Which temperature calibrates the model?", "calibration", "temperature that calibrates"
)

CORRUPTIONS = Question(
    "How robust is the model to corruptions?",
    "robustness",
    "accuracy under corruptions",
    "Corruptions leave {better} {difference} points more accuracy than {worse}.",
)
HIGH_NOISE = Question(
    "How much does high-frequency noise reduce accuracy?",
    "robustness",
    "accuracy lost to high-frequency noise",
    "High-frequency noise costs {worse} {difference} points more accuracy than {better}.",
)
LOW_NOISE = Question(
    "How much does low-frequency noise reduce accuracy?",
    "robustness",
    "accuracy lost to low-frequency noise",
    "Low-frequency noise costs {worse} {difference} points more accuracy than {better}.",
)
ADVERSARIAL = Question(
    "How robust is the model to adversarial perturbations?",
    "robustness",
    "accuracy under attack",
    "Attacks leave {better} {difference} points more accuracy than {worse}.",
    with_size=True,
)
NOISE_FREQUENCY = Question(
    "Is the model more sensitive to high- or to low-frequency noise?", "robustness"
)
NOISE = Question("How much does noise in one frequency band reduce accuracy?", "robustness")
FREQUENCY_SENSITIVITY = Question(
    "How sensitive is the model to noise of single frequencies?", "robustness"
)
SHIFTED_IMAGES = Question("How much does accuracy drop on shifted images?", "robustness")
STABILITY = Question("Are predictions stable along perturbation sequences?", "robustness")
OTHER_DATA = Question("Does the confidence detect images of other data?", "robustness")
SHAPE_BIAS = Question("Does the model classify by shape or by texture?", "robustness")
QUANTIZATION = Question(
    "How much does accuracy drop when one block is quantized?", "robustness"
)

# Costs on this machine; a label is the quantity's, which states threads and batch.
LATENCY = Question(
    "How long does one image take?",
    "cost",
    "latency",
    "{better} takes {low} ms for one image, {worse} {high} ms.",
    better="lower",
)
THROUGHPUT = Question(
    "How many images does it classify in a second?", "cost", "throughput", better="higher"
)
MEMORY = Question("How much memory does a batch take?", "cost", "memory", better="lower")
PARAMETERS = Question("How many parameters does it have?", "cost", "parameters")
MACS = Question("How much arithmetic does one image take?", "cost", "MACs per image")

FILTERS = Question(
    "Are blocks low-pass or high-pass filters?",
    "filters",
    "high frequencies (blocks that lower or raise them)",
)

VARIANCE = Question(
    "Do blocks lower or raise the variance?",
    "variance of feature maps",
    "variance (blocks that lower or raise it)",
)

IMPORTANCE = Question(
    "Which block matters most to the accuracy?",
    "importance of blocks",
    "most important block (points lost)",
    first_part=True,
)
KINDS = Question("Which kinds of blocks does the accuracy depend on?", "importance of blocks")

FLATNESS = Question(
    "How flat is the loss?",
    "curvature of the loss",
    "curvature (Hessian eigenvalues)",
    "The loss of {better} is flatter by every measure: eigenvalues {low} against {high}.",
    of="hessian-summary",
    all_measures=True,
)
CURVATURE = Question(
    "Does the loss have negative curvature?",
    "curvature of the loss",
    "negative curvature (smallest eigenvalue)",
    with_number=True,
)

SIMILARITY = Question("How similar are the features of two models?", "similarity of models")
DISAGREEMENT = Question(
    "Which images does only one model classify correctly?",
    "similarity of models",
)
ERRORS = Question("Do the models err on the same images?", "similarity of models")
BLOCK_STRUCTURE = Question("Does CKA show block structure?", "similarity of blocks")

READOUT = Question("Can the classes be read linearly from the last block?", OTHER)
COLLAPSE = Question("Do the features of a class collapse?", OTHER)
RECEPTIVE_FIELD = Question("How large is the receptive field?", OTHER)
RANK = Question("How many directions do the tokens of an image use?", OTHER)
OUTLIERS = Question("Are there outlier tokens?", OTHER)
TOKEN_SIMILARITY = Question("How similar are the tokens of an image in the last block?", OTHER)
ATTENTION_DISTANCE = Question("How far does attention reach?", OTHER)
ATTENTION_NMI = Question("Do queries attend to different keys?", OTHER)

QUESTIONS = {q.text: q for q in list(globals().values()) if isinstance(q, Question)}


def declared_question(text: str, better: Literal["", "higher", "lower"] = "") -> Question:
    """The question that an estimate answers, with the direction that the estimate states."""
    known = question_of(text)
    QUESTIONS[text] = question = replace(known, better=better or known.better)
    return question


def question_of(text: str) -> Question:
    """The declared question; one of the other questions where it is not declared."""
    return QUESTIONS.get(text) or Question(text, OTHER)


def place_of(text: str) -> int:
    """Place of a question in the table; those that are not declared come last."""
    return list(QUESTIONS).index(text) if text in QUESTIONS else len(QUESTIONS)
