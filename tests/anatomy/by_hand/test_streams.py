"""Laws of dissection on networks with parallel streams, whose parts can be read off them."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from visprism import Variance, ablate, dissect, observe, watch


def conv(in_chans, out_chans, stride=1):
    return nn.Conv2d(in_chans, out_chans, 3, stride, padding=1)


class Streams(nn.Module):
    """A fine and a coarse stream, which exchange twice; `fine_first` is the order of execution.

    `without` is the number of a residual convolution of the fine stream that is left out.
    """

    def __init__(self, *, fine_first=True, without=None):
        super().__init__()
        self.fine_first, self.without = fine_first, without
        self.stem = conv(3, 4)
        self.coarsen = conv(4, 6, 2)
        self.fine = nn.ModuleList(conv(4, 4) for _ in range(6))
        self.coarse = nn.ModuleList(conv(6, 6) for _ in range(6))
        self.down = nn.ModuleList(conv(4, 6, 2) for _ in range(2))
        self.up = nn.ModuleList(nn.Conv2d(6, 4, 1) for _ in range(2))
        self.fc = nn.Linear(10, 5)

    def run_fine(self, x, i):
        for k in (2 * i, 2 * i + 1):
            x = x if k == self.without else x + functional.relu(self.fine[k](x))
        return x

    def run_coarse(self, x, i):
        for layer in self.coarse[2 * i : 2 * i + 2]:
            x = x + functional.relu(layer(x))
        return x

    def forward(self, x):
        fine = self.stem(x)
        coarse = self.coarsen(fine)
        for i in range(3):
            if self.fine_first:
                fine, coarse = self.run_fine(fine, i), self.run_coarse(coarse, i)
            else:
                coarse = self.run_coarse(coarse, i)
                fine = self.run_fine(fine, i)
            if i < 2:
                from_coarse = functional.interpolate(self.up[i](coarse), scale_factor=2)
                from_fine = self.down[i](fine)
                fine, coarse = fine + from_coarse, coarse + from_fine
        return self.fc(torch.cat([fine.mean((2, 3)), coarse.mean((2, 3))], 1))


class Cells(nn.Module):
    """Each cell reads the two before it, so that no tensor between them is a cut."""

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.latest, self.earlier = conv(4, 4), nn.Conv2d(4, 4, 1)

        def forward(self, earlier, latest):
            return self.latest(latest.relu()) + self.earlier(earlier.relu())

    def __init__(self):
        super().__init__()
        self.stem, self.fc = conv(3, 4), nn.Linear(4, 5)
        self.cells = nn.ModuleList(self.Cell() for _ in range(5))

    def forward(self, x):
        earlier = latest = self.stem(x)
        for cell in self.cells:
            earlier, latest = latest, cell(earlier, latest)
        return self.fc(latest.mean((2, 3)))


class Towers(nn.Module):
    """Two plain towers on one grid, joined once, which hold most of the network."""

    def __init__(self):
        super().__init__()
        self.stem, self.fc = conv(3, 4), nn.Linear(8, 5)
        self.left = nn.Sequential(*(conv(4, 4) for _ in range(3)))
        self.right = nn.Sequential(*(conv(4, 4) for _ in range(3)))

    def forward(self, x):
        x = self.stem(x)
        return self.fc(torch.cat([self.left(x), self.right(x)], 1).mean((2, 3)))


class Remembered(nn.Module):
    """Each residual convolution after the first reads what the first gave, too."""

    def __init__(self):
        super().__init__()
        self.stem, self.fc = conv(3, 4), nn.Linear(4, 5)
        self.convs = nn.ModuleList(conv(4, 4) for _ in range(5))

    def forward(self, x, without=None):
        x = self.stem(x)
        first = self.convs[0](x)
        x = x + first.relu()
        for layer in self.convs[1:]:
            x = x if layer is without else x + layer(x + first).relu()
        return self.fc(x.mean((2, 3)))


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Dense(nn.Module):
    """A head of most of the arithmetic, which reads the outputs of all stages (SegFormer)."""

    def __init__(self):
        super().__init__()
        stages = [(conv(n, 4, k), *(Residual(conv(4, 4)) for _ in range(2))) for n, k in STAGES]
        self.stages = nn.ModuleList(nn.Sequential(*stage) for stage in stages)
        self.sides = nn.ModuleList(nn.Conv2d(4, 32, 1) for _ in STAGES)
        self.fuse, self.out = nn.Conv2d(32 * len(STAGES), 32, 1), nn.Conv2d(32, 5, 1)

    def forward(self, x):
        maps = []
        for stage, side in zip(self.stages, self.sides, strict=True):
            x = stage(x)
            maps.append(functional.interpolate(side(x), size=(8, 8)))
        return self.out(self.fuse(torch.cat(maps, 1)).relu())


STAGES = [(3, 1), (4, 2), (4, 2)]


@pytest.fixture(scope="module")
def images():
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def streams(images):
    return dissect(Streams().eval(), images)


FINE = ["fine.0", "fine.1", "up.0", "fine.2", "fine.3", "up.1", "fine.4", "fine.5"]
COARSE = [name.replace("fine", "coarse").replace("up", "down") for name in FINE]


def test_each_stream_has_its_blocks_on_its_grid(streams):
    rows = [(b.name, b.stream, b.shape) for b in streams]
    assert sorted(rows) == sorted(
        [
            ("stem", 0, (4, 8, 8)),
            *((name, 0, (4, 8, 8)) for name in FINE),
            *((name, 1, (6, 4, 4)) for name in ["coarsen", *COARSE]),
            ("head", 0, (5,)),
        ]
    )
    assert [b.name for b in streams if b.subsampling] == ["coarsen"]
    assert {b.kind for b in streams if b.name.startswith(("fine", "coarse."))} == {"conv"}
    assert streams.notes == ()


def test_depth_is_the_longest_way_from_the_image(streams):
    depth = {b.name: b.depth * 9 for b in streams}
    assert depth["stem"] == 0
    assert depth["fine.0"] == depth["coarsen"] == pytest.approx(1)
    assert depth["fine.1"] == depth["coarse.0"] == pytest.approx(2)
    assert depth["up.0"] == depth["down.0"] == pytest.approx(4)  # after coarse.1
    assert depth["fine.5"] == depth["coarse.5"] == pytest.approx(9)


def test_the_order_of_execution_changes_no_block(streams, images):
    def parts(anatomy):
        return {
            (b.name, b.kind, b.shape, b.stage, round(b.depth, 9), b.parameters) for b in anatomy
        }

    other = dissect(Streams(fine_first=False).eval(), images)
    assert [b.name for b in other] != [b.name for b in streams]
    assert parts(other) == parts(streams)


def test_cells_that_read_two_others_are_blocks_of_one_stream(images):
    anatomy = dissect(Cells().eval(), images)
    assert [(b.name, b.stream) for b in anatomy] == [
        ("stem", 0),
        *((f"cells.{i}", 0) for i in range(5)),
        ("head", 0),
    ]
    assert [b.start for b in anatomy[1:]] == [b.end for b in anatomy[:-1]]


class Joining(nn.Module):
    """A block of U-ViT: joins with an earlier map, if it has one, before two residual sums."""

    def __init__(self, *, joins):
        super().__init__()
        self.skip = nn.Conv2d(8, 4, 1) if joins else None
        self.first, self.second = conv(4, 4), conv(4, 4)

    def forward(self, x, earlier, without):
        if self.skip is not None:
            x = self.skip(torch.cat([x, earlier], 1))
        for layer in (self.first, self.second):
            x = x if layer is without else x + layer(x).relu()
        return x


class LongSkips(nn.Module):
    """As U-ViT: the last blocks read what the first ones gave."""

    def __init__(self):
        super().__init__()
        self.stem, self.fc = conv(3, 4), nn.Linear(4, 5)
        self.blocks = nn.ModuleList(Joining(joins=i > 2) for i in range(5))

    def forward(self, x, without=None):
        x, earlier = self.stem(x), []
        for i, block in enumerate(self.blocks):
            x = block(x, earlier.pop() if i > 2 else None, without)
            earlier += [x] * (i < 2)
        return self.fc(x.mean((2, 3)))


def test_long_skips_hide_no_block(images):
    model = LongSkips().eval()
    anatomy = dissect(model, images)
    for name, block in model.blocks.named_children():
        for part in ("first", "second"):
            with torch.no_grad(), ablate(anatomy, anatomy[f"blocks.{name}.{part}"]):
                ablated = model(images)
            with torch.no_grad():
                expected = model(images, without=block.get_submodule(part))
            torch.testing.assert_close(ablated, expected)


def test_what_later_blocks_read_again_hides_no_block(images):
    model = Remembered().eval()
    anatomy = dissect(model, images)
    assert [(b.name, b.kind) for b in anatomy[1:-1]] == [
        (f"convs.{i}", "conv") for i in range(5)
    ]
    assert [b.start for b in anatomy[1:]] == [b.end for b in anatomy[:-1]]
    with torch.no_grad():
        expected = model(images, without=model.convs[2])
        with ablate(anatomy, anatomy["convs.2"]):
            torch.testing.assert_close(model(images), expected)


def test_stages_that_a_heavy_head_reads_have_their_blocks(images):
    anatomy = dissect(Dense().eval(), images)
    grids = {b.name: b.shape[1:] for b in anatomy}
    blocks = {f"stages.{i}.{k}": (8 >> i, 8 >> i) for i in range(3) for k in (1, 2)}
    assert {name: grid for name, grid in grids.items() if name in blocks} == blocks
    assert [b.name for b in anatomy if b.subsampling] == ["stages.1.0", "stages.2.0"]


def test_plain_towers_on_one_grid_are_two_streams(images):
    anatomy = dissect(Towers().eval(), images)
    by_stream = [[b.name for b in anatomy if b.stream == number] for number in (1, 2)]
    assert by_stream == [[f"left.{i}" for i in range(3)], [f"right.{i}" for i in range(3)]]


def test_the_branches_of_one_of_several_modules_are_no_streams(images):
    class Inception(nn.Module):
        def __init__(self):
            super().__init__()
            self.left = nn.Sequential(conv(8, 4), conv(4, 4))
            self.right = nn.Sequential(conv(8, 4), conv(4, 4))

        def forward(self, x):
            return torch.cat([self.left(x), self.right(x)], 1)

    modules = nn.Sequential(conv(3, 8), *(Inception() for _ in range(3)))
    model = nn.Sequential(modules, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    anatomy = dissect(model.eval(), images)
    assert [b.name for b in anatomy] == ["stem", "0.1", "0.2", "0.3", "head"]
    assert {b.stream for b in anatomy} == {0}


def test_the_feature_map_of_a_block_is_that_of_its_stream(streams, images):
    model = streams.model
    with watch(streams) as maps, torch.no_grad():
        model(images)
        fine = model.stem(images)
        coarse = model.coarsen(fine)
        assert torch.equal(maps["coarsen"], coarse)
        assert torch.equal(maps["fine.1"], model.run_fine(fine, 0))
        expected = model.run_coarse(coarse, 0) + model.down[0](maps["fine.1"])
        assert torch.equal(maps["down.0"], expected)


def test_a_change_across_a_block_is_relative_to_its_stream(streams, images):
    (result,) = observe(streams, [images], [Variance()])
    rows = {name: i for i, name in enumerate(result.block.tolist())}
    before = result.previous.tolist()
    assert [before[rows[name]] for name in FINE] == ["stem", *FINE[:-1]]
    assert [before[rows[name]] for name in ["coarsen", *COARSE]] == [
        "",
        "coarsen",
        *COARSE[:-1],
    ]
    variance = result.variance[[rows["coarse.0"], rows["coarsen"]]]
    assert result.change[rows["coarse.0"]] == pytest.approx(variance[0] / variance[1] - 1)
    assert result.stream[[rows["fine.0"], rows["coarse.0"]]].tolist() == [0, 1]


@pytest.mark.parametrize("number", [0, 3])
def test_ablation_within_a_stream_is_the_network_without_the_block(streams, images, number):
    shorter = Streams(without=number).eval()
    shorter.load_state_dict(streams.model.state_dict())
    with ablate(streams, streams[f"fine.{number}"]), torch.no_grad():
        assert torch.equal(streams.model(images), shorter(images))
