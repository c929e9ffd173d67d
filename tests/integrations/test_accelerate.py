"""The monitor in a loop of Accelerate."""

import torch
from accelerate import Accelerator
from accelerate.data_loader import prepare_data_loader
from torch.nn.functional import cross_entropy

from visprism import examine
from visprism.integrations.accelerate import AcceleratedMonitor


def test_a_prepared_model_is_measured_after_updates(network, loader, monitor):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    logged = []
    accelerator.log = lambda values, step: logged.append((step, values))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    model, optimizer, batches = accelerator.prepare(network, optimizer, loader())
    watch = AcceleratedMonitor(monitor, accelerator)
    step = 0
    for _ in range(2):
        for images, targets in batches:
            with accelerator.accumulate(model):
                loss = cross_entropy(model(images), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            step += accelerator.sync_gradients
            watch.step(model, step, optimizer, {"loss": loss.item()})
    assert list(monitor.studies) == [2, 4]
    assert not [f for study in monitor.studies.values() for f in study.failures]
    assert [entry[0] for entry in logged] == [2, 4]
    assert logged[0][1]["visprism/calibration/nll"] > 0


def test_a_prepared_loader_of_one_of_several_processes_is_read_whole(network, loader):
    part = prepare_data_loader(loader(), num_processes=2, process_index=1)
    data = loader(), part
    studies = [examine(network.eval(), one, analyses="calibration") for one in data]
    whole, read = (study.header["images"] for study in studies)
    assert read == whole
