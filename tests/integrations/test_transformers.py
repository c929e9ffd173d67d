"""The monitor in the Trainer of Transformers."""

import torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

from visprism import evolve
from visprism.integrations.transformers import MonitorCallback
from visprism.results import Evolution


class Images(torch.utils.data.Dataset):
    def __init__(self, tensors):
        self.tensors = tensors

    def __len__(self):
        return len(self.tensors)

    def __getitem__(self, index):
        image, target = self.tensors[index]
        return {"pixel_values": image, "labels": target}


def trained(folder, data, monitor=None):
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=8, patch_size=2, num_labels=4, hidden_dropout_prob=0.1,
    )  # fmt: skip
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=6, per_device_train_batch_size=4, use_cpu=True,
        gradient_accumulation_steps=2, logging_steps=1, report_to=[], save_strategy="steps",
        save_steps=3,
        disable_tqdm=True, seed=0,
    )  # fmt: skip
    trainer = Trainer(
        model=ViTForImageClassification(config), args=arguments, train_dataset=Images(data)
    )
    if monitor is not None:
        trainer.add_callback(MonitorCallback(monitor, trainer))
    trainer.train()
    return trainer


def test_a_model_is_measured_and_its_weights_are_those_without(
    tmp_path, train_set, monitor, images
):
    measured = trained(tmp_path, train_set, monitor)
    plain = trained(tmp_path, train_set)
    states = [trainer.model.state_dict() for trainer in (measured, plain)]
    torch.testing.assert_close(*states, rtol=0, atol=0)
    assert list(monitor.studies) == [2, 4, 6]
    assert not [f for study in monitor.studies.values() for f in study.failures]
    name = "visprism/calibration/nll"
    logged = {row["step"]: row[name] for row in measured.state.log_history if name in row}
    assert list(logged) == [2, 4, 6]
    assert [r["step"] for r in measured.state.log_history if "loss" in r] == [1, 2, 3, 4, 5, 6]
    losses = {row["step"]: row["loss"] for row in measured.state.log_history if "loss" in row}
    for step, one in monitor.studies.items():
        assert one.header["metrics"]["loss"] == losses[step]
    study = evolve(tmp_path, images, analyses="calibration")  # of checkpoint-3 and -6
    curves = [r for e in study.entries for r in e.results if isinstance(r, Evolution)]
    (nll,) = [curve for curve in curves if curve.quantity == "NLL"]
    assert nll.step.tolist() == [3, 6]
    last = monitor.studies[6]["calibration"]["ViTForImageClassification"]
    (measured,) = [a.value for a in last.answers() if a.quantity == "NLL"]
    assert abs(nll.value[1] - measured) < 1e-6


def test_an_alarm_ends_the_training(tmp_path, train_set, monitor):
    monitor.on_alarm = "stop"
    poisoned = [(image * float("nan"), target) for image, target in train_set]
    trainer = trained(tmp_path, poisoned, monitor)
    assert trainer.state.global_step == monitor.alarms[0].step < 6
    assert monitor.alarms[0].code == "VP207"
