"""The weights of every attention in a forward pass.

A fused attention never stores its weights; they are recomputed from its inputs. The model still
receives what the fused operation returns: reading weights does not change a bit of its output.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.blocks.attention import Attention, Weights, attentions
from visprism.anatomy.run.attention_operations import weighing
from visprism.anatomy.run.interception import Call, fixed_image_size, intercept
from visprism.core.errors import InputError

T = TypeVar("T")


@contextmanager
def attend(
    anatomy: Anatomy,
    keep: Callable[[Weights], T],
    *,
    only: Iterable[Attention] | None = None,
    differentiable: bool = False,
) -> Iterator[dict[str, T]]:
    """Collect something of each attention's weights of the latest forward pass, by its name.

    Weights are softmax(q kT scale + bias): of each query over its keys they add up to 1.

    Args:
        anatomy: of the model that will run.
        keep: applied to the weights at once, inside the forward pass; it must
            return new memory.
        only: attentions to collect; by default all of `attentions`.
        differentiable: compute the model's output from these weights, so that it can be
            differentiated with respect to them.

    Yields:
        A dictionary that each forward pass fills.
    """
    watched = attentions(anatomy) if only is None else tuple(only)
    if not watched:
        raise InputError(
            "the model must have an attention with a softmax over positions of "
            f"the image, and {type(anatomy.model).__name__} has none. Choose a "
            "model such as timm:vit_tiny_patch16_224."
        )
    collected: dict[str, T] = {}

    def reading(attention: Attention) -> Call:
        def read(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Any:
            op = anatomy.graph.nodes[attention.node].op
            weights, anew = weighing(op, args, kwargs, out)
            values = attention.geometry.weights(weights)
            collected[attention.name] = keep(Weights(attention, values))
            if differentiable:
                return anew(attention.geometry.tensor(values, weights.shape))
            return None

        return read

    calls = {attention.node: reading(attention) for attention in watched}
    with fixed_image_size(anatomy), intercept(anatomy, calls=calls):
        yield collected
