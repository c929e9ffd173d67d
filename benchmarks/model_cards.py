"""docs/model_cards.md, from the cards of the networks with pretrained weights.

    python benchmarks/model_cards.py            # prints the page
    python benchmarks/model_cards.py --write    # and writes docs/model_cards.md

Every number comes from the JSON file next to the weights, which benchmarks/trained.py writes.
"""

import argparse
from pathlib import Path

from visprism.models.pretrained import PretrainedCard, epochs_in_words, pretrained_cards

DOCUMENT = Path(__file__).parent.parent / "docs" / "model_cards.md"

HEAD = """\
# Model cards

Small networks with pretrained weights ship inside the package, as 16-bit safetensors. Their
names are `architecture.tag`. They load without a network connection:

```sh
visprism models --trained
visprism examine resnet20.cifar10 --data cifar10 --out report
visprism examine resnet20 --pretrained --data cifar10 --out report   # its default weights
```

```python
from visprism import load_model

network = load_model("resnet20.cifar10").model
```

Accuracy, NLL and ECE come from the 16-bit weights on all test images, in fp32 on a CPU. The
interval is the 95% Wilson interval over images, not over seeds: each network was trained once.
Minutes are wall time, with an evaluation after each epoch, on a machine that ran other work.

**Limits.** The networks are meant for examples, tests and comparisons of small networks, not
for classification in practice. Training on CIFAR-10 took minutes on one thread, so the accuracy
is lower than with long recipes (ResNet-20: 91.25% in He et al. 2016, table 6). These images
were JPEG-compressed with chroma subsampling, which damages their highest frequencies: Fourier
results describe the compressed copy, and accuracy on the original images may differ. The images
of shapes are synthetic: results do not transfer to photographs.

`python benchmarks/model_cards.py --write` writes this page from the cards next to the weights.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    arguments = parser.parse_args()
    text = page()
    print(text)
    if arguments.write:
        DOCUMENT.write_text(text, encoding="utf-8")


def page() -> str:
    """The whole page, in Markdown."""
    cards = pretrained_cards().values()
    lines = [
        "| model | parameters | data | accuracy [95% interval] | epochs | minutes | file |",
        "|---|--:|---|--:|--:|--:|--:|",
        *(row(card) for card in cards),
    ]
    return "\n".join([HEAD, *lines, "", *(section(card) for card in cards)])


def row(card: PretrainedCard) -> str:
    cells = [
        f"[`{card.name}`](#{card.name.replace('.', '')})",
        f"{card.parameters:,}",
        card.data,
        accuracy(card),
        epochs_in_words(card),
        f"{card.minutes:.1f}",
        f"{size(card):.2f} MB",
    ]
    return f"| {' | '.join(cells)} |"


def section(card: PretrainedCard) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    images = card.preprocessing
    entries = {
        "Data": f"{card.data_description}; {card.train_images:,} training images and "
        f"{card.test_images:,} test images.",
        "License": f"{card.data_license}.",
        "Preprocessing": f"{images}.",
        "Classes": f"{', '.join(card.class_names)}.",
        "Recipe": f"{recipe(card)}, seed {card.seed}; {epochs_in_words(card)} "
        f"{'epoch' if card.recipe_epochs == 1 else 'epochs'} in {card.minutes:.1f} minutes on "
        f"{card.machine}; {versions}.",
        "Accuracy": f"{accuracy(card)}, NLL {card.nll:.3f}, ECE {card.ece:.1%}; "
        f"{card.accuracy_fp32:.2%} before the weights were rounded to 16 bits.",
        "Train it again": f"`python benchmarks/trained.py {card.name}`{whole_schedule(card)}.",
    }
    body = "\n".join(f"- **{title}.** {text}" for title, text in entries.items())
    return f"## {card.name}\n\n{body}\n"


def whole_schedule(card: PretrainedCard) -> str:
    if card.epochs == card.recipe_epochs:
        return ""
    return f", which completes all {card.recipe_epochs} epochs; training was stopped early"


def recipe(card: PretrainedCard) -> str:
    changes = ", ".join(f"`{name}={value}`" for name, value in card.recipe_changes.items())
    return f"`{card.recipe}`{f' with {changes}' if changes else ''}"


def accuracy(card: PretrainedCard) -> str:
    return f"{card.accuracy:.2%} [{card.accuracy_low:.2%}, {card.accuracy_high:.2%}]"


def size(card: PretrainedCard) -> float:
    """Of the weight file, in MB."""
    return card.weights.stat().st_size / 1e6


if __name__ == "__main__":
    main()
