"""A program that watches itself with oomph's library and says what is true: watched.py {plain,trainer,lightning}."""

import json
import os
import sys

import torch

import oomph


def show(name, value):
    print("%s=%s" % (name, json.dumps(value)), flush=True)


def plain():
    """Grows by 8 MiB a step, reports itself, and dies of a tensor that is too large."""
    model = torch.nn.Linear(512, 512).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held = []
    with oomph.watch(keep="kept", record="full"):
        for _ in range(40):
            model(torch.randn(64, 512, device="cuda")).square().mean().backward()
            optimizer.step()
            held.append(torch.empty(8 << 20, dtype=torch.uint8, device="cuda"))
        report = oomph.report()
        free, total = torch.cuda.mem_get_info()
        show("report", report)
        show("truth", {
            "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(),
            "allocated_peak": torch.cuda.max_memory_allocated(), "free": free, "total": total,
            "pid": os.getpid(),
        })
        show("scalars", oomph.scalars())
        print(report)
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")


def trainer():
    """A Trainer with TensorBoard, which gets oomph's figures."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=64, n_head=2, vocab_size=64))
    data = [{"input_ids": torch.full((8,), index % 64), "labels": torch.full((8,), index % 64)} for index in range(64)]
    os.environ["TENSORBOARD_LOGGING_DIR"] = "board"
    arguments = TrainingArguments(
        output_dir="made", max_steps=6, logging_steps=2, report_to="tensorboard", disable_tqdm=True, save_strategy="no",
    )
    Trainer(model=model, args=arguments, train_dataset=data, callbacks=[oomph.TrainerCallback()]).train()
    show("board", tags("."))


def lightning():
    """A Trainer of Lightning with TensorBoard."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch, index):
            return self.layer(batch[0]).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), batch_size=8)
    logger = lightning.pytorch.loggers.TensorBoardLogger("board")
    lightning.Trainer(
        max_steps=8, logger=logger, log_every_n_steps=2, enable_progress_bar=False, accelerator="gpu", devices=1,
        callbacks=[oomph.LightningCallback()],
    ).fit(Module(), data)
    show("board", tags("board"))


def tags(folder):
    """The names and last values of the scalars that TensorBoard finds."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for path, _, files in os.walk(folder):
        if any(name.startswith("events.") for name in files):
            events = EventAccumulator(path).Reload()
            for tag in events.Tags()["scalars"]:
                found[tag] = events.Scalars(tag)[-1].value
    return found


{"plain": plain, "trainer": trainer, "lightning": lightning}[sys.argv[1]]()
