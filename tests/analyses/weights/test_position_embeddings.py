"""Laws of tables of positions (src/visprism/analyses/weights/position_embeddings.py)."""

import numpy as np
import pytest
import torch
from torch import nn

from visprism import InputError, load_model, positional_similarity


class Tokens(nn.Module):
    """Patches as tokens, a class token or more, a table of positions, an MLP, and a head."""

    def __init__(self, table, prefix=0):
        super().__init__()
        width = table.shape[-1]
        self.patches = nn.Conv2d(3, width, 2, stride=2)
        self.prefix = nn.Parameter(torch.zeros(1, prefix, width))
        self.table = nn.Parameter(table)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width))
        self.head = nn.Linear(width, 5)

    def placed(self, x):
        """Tokens with their positions and the class token."""
        x = x.flatten(2).transpose(1, 2)
        return torch.cat([self.prefix.expand(len(x), -1, -1), x], 1) + self.table

    def forward(self, x):
        x = self.placed(self.patches(x)).flatten(1, -2)
        return self.head((x + self.mlp(x)).mean(1))


class WithoutEntriesForPrefix(Tokens):
    def placed(self, x):
        x = x.flatten(2).transpose(1, 2) + self.table
        return torch.cat([self.prefix.expand(len(x), -1, -1), x], 1)


class ChannelsFirst(Tokens):
    """The table is (1, channels, height, width)."""

    def __init__(self, table):
        super().__init__(table.movedim(1, -1))
        self.table.data = table

    def placed(self, x):
        return (x + self.table).permute(0, 2, 3, 1)


@pytest.fixture
def similarity(taken_apart):
    """`similarity(model, (4, 6))`: of a 4x6 grid, as (row, column, row, column)."""

    def similarity(model, grid):
        result = positional_similarity(taken_apart(model, 3, 2 * grid[0], 2 * grid[1]))
        return result.cosine.reshape(*grid, *grid)

    return similarity


def waves(height, width, bands):
    """Sines and cosines of the row and the column: (1, height * width, 4 * bands)."""
    speeds = 10.0 ** -torch.arange(bands).double()
    angles = [torch.arange(n)[:, None] * speeds for n in (height, width)]
    of_row, of_column = (torch.cat([a.sin(), a.cos()], 1) for a in angles)
    rows = of_row[:, None].expand(-1, width, -1)
    columns = of_column[None].expand(height, -1, -1)
    return torch.cat([rows, columns], 2).reshape(1, height * width, -1), speeds.numpy()


def of_waves(grid, speeds):
    """The similarity of sines and cosines: half the mean cosine of each difference's angle."""
    row, column, other_row, other_column = np.indices((*grid, *grid))[..., None]
    both = np.cos((row - other_row) * speeds) + np.cos((column - other_column) * speeds)
    return both.mean(-1) / 2


def test_sines_and_cosines_are_alike_by_their_distance(similarity):
    table, speeds = waves(4, 6, 3)
    expected = of_waves((4, 6), speeds)
    np.testing.assert_allclose(similarity(Tokens(table), (4, 6)), expected)


def test_entries_of_class_tokens_are_left_out(similarity, noise):
    prefix = 3
    table, first = noise(1, 12, 8), noise(1, prefix, 8)
    expected = similarity(Tokens(table), (3, 4))
    longer = Tokens(torch.cat([first, table], 1), prefix)
    np.testing.assert_allclose(similarity(longer, (3, 4)), expected)
    bare = WithoutEntriesForPrefix(table, prefix)
    np.testing.assert_allclose(similarity(bare, (3, 4)), expected)


def test_the_table_may_lie_on_the_grid_or_lack_the_batch_axis(similarity, noise):
    table = noise(1, 12, 8)
    expected = similarity(Tokens(table), (3, 4))
    first = table.view(1, 3, 4, 8).permute(0, 3, 1, 2)
    for model in (ChannelsFirst(first), Tokens(table[0])):
        np.testing.assert_allclose(similarity(model, (3, 4)), expected)


def test_large_grids_have_7_by_7_references(taken_apart):
    table, speeds = waves(17, 20, 2)
    result = positional_similarity(taken_apart(Tokens(table), 3, 34, 40))
    assert len(result) == 7 * 7 * 17 * 20
    assert np.unique(result.row).tolist() == [0, 3, 5, 8, 11, 13, 16]
    expected = of_waves((17, 20), speeds)
    at = result.row, result.column, result.other_row, result.other_column
    np.testing.assert_allclose(result.cosine, expected[at], atol=1e-12)


def test_an_entry_of_zeros_has_no_direction(similarity, noise):
    table = noise(1, 12, 8)
    table[0, 5] = 0
    cosine = similarity(Tokens(table), (3, 4)).reshape(12, 12)
    assert np.isnan(cosine[5]).all()
    assert np.isnan(cosine[:, 5]).all()
    assert np.isfinite(np.delete(np.delete(cosine, 5, 0), 5, 1)).all()


def test_a_model_without_a_table_is_refused(taken_apart, noise):
    bias = Tokens(noise(8))  # the same everywhere
    for model in (load_model("resnet20").model, bias):
        with pytest.raises(InputError, match="its first block, stem, adds none"):
            positional_similarity(taken_apart(model, 3, 8, 8))


def test_a_resampled_table_is_refused(taken_apart, noise):
    class Resampled(Tokens):
        def placed(self, x):
            table = nn.functional.interpolate(
                self.table.view(1, 3, 4, 8).permute(0, 3, 1, 2), x.shape[2:]
            )
            return (x + table).permute(0, 2, 3, 1)

    sentence = r"must be one parameter, and the model computes them from table \(1x12x8\)"
    with pytest.raises(InputError, match=sentence):
        positional_similarity(taken_apart(Resampled(noise(1, 12, 8)), 3, 12, 16))
