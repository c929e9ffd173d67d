"""The monitor in a loop of Accelerate."""

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy

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
