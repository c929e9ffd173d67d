"""A result of each type that has a figure, written by hand: `MAKERS`, by name."""

from inspect import isfunction

from results_by_hand import attention_and_weights, feature_maps, loss, outputs

MAKERS = {
    name: maker
    for module in (feature_maps, attention_and_weights, loss, outputs)
    for name, maker in vars(module).items()
    if isfunction(maker) and maker.__module__ == module.__name__ and name[0] != "_"
}
