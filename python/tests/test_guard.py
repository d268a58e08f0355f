"""A run that counts: the trainer's checkpoints, where it resumes, its micro-batch, and what the hook leaves alone."""

import os
import sys
import types
import unittest

import support

sys.path.insert(0, support.PYTHON)

from oomph import guard, record, watcher

TRAINER = """
    import os, sys
    import torch
    try:
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
    except ImportError:
        sys.exit(77)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=64))
    data = [{"input_ids": torch.full((8,), index % 64), "labels": torch.full((8,), index % 64)} for index in range(64)]
    batch, accumulation, steps = map(int, sys.argv[1:4])
    arguments = TrainingArguments(
        output_dir="made", per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation, max_steps=steps,
        save_steps=2, report_to="none", use_cpu=True, disable_tqdm=True, logging_strategy="no",
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
"""


class Held(unittest.TestCase):
    """What a guarded run leaves for `oomph watch`, with an allocator that says what the test wants."""

    def setUp(self):
        self.capturing = False
        stats = {
            "reserved_bytes": {"all": {"peak": 9, "current": 8}}, "allocated_bytes": {"all": {"peak": 7, "current": 6}},
            "inactive_split_bytes": {"all": {"current": 1}}, "num_alloc_retries": 2,
        }
        cuda = types.SimpleNamespace(
            _initialized=True, mem_get_info=lambda index: (100, 200), is_current_stream_capturing=lambda: self.capturing
        )
        native = types.SimpleNamespace(_cuda_getDeviceCount=lambda: 1, _cuda_memoryStats=lambda index: stats)
        self.torch = types.SimpleNamespace(cuda=cuda, _C=native)
        self.record = record.Record("unused")
        config = {"stop": {"mode": "exit"}}
        self.watcher = watcher.Watcher(self.torch, self.record, config)
        self.record.current_memory = self.watcher.peaks
        self.record.memory_now = self.watcher.held

    def test_only_a_guarded_run_says_what_it_holds(self):
        self.assertIsNone(self.record.as_dict("step-end")["memory_now"])
        self.record.guard = guard.Guard(self.torch, self.record, {})
        self.record.guard.cards[0] = "GPU-1"
        now = self.record.as_dict("step-end")["memory_now"]
        self.assertEqual((now["moment"], now["step"]), ("step-end", 0))
        self.assertEqual(now["devices"], [{
            "index": 0, "uuid": "GPU-1", "allocated_bytes": 6, "reserved_bytes": 8, "fragments_bytes": 1, "retries": 2,
            "free_bytes": 100,
        }])

    def test_a_limit_bounds_what_is_free(self):
        self.record.guard = guard.Guard(self.torch, self.record, {"limit_bytes": 60})
        self.record.guard.most[0] = 50
        self.assertEqual(self.record.as_dict("step-end")["memory_now"]["devices"][0]["free_bytes"], 42)

    def test_a_process_without_a_card_does_not_start_cuda(self):
        self.record.guard = guard.Guard(self.torch, self.record, {})
        self.torch.cuda._initialized = False
        self.torch.cuda.is_current_stream_capturing = None
        self.assertEqual(self.record.as_dict("step-end")["memory_now"]["devices"], [])

    def test_what_is_free_is_asked_at_step_ends_alone_and_never_in_a_capture(self):
        self.record.guard = guard.Guard(self.torch, self.record, {})
        for moment, capturing in (("refusal", False), ("start", False), ("step-end", True)):
            self.capturing = capturing
            self.assertIsNone(self.record.as_dict(moment)["memory_now"]["devices"][0]["free_bytes"])


class Real(support.RunCase):
    config = {"follow": False, "allow_writes": True, "network": "all", "batches": "seen", "guard": {}}

    def trained(self, *arguments):
        done = self.python(TRAINER, *map(str, arguments))
        if done.returncode == 77:
            self.skipTest("transformers is not installed")
        self.assertEqual(done.returncode, 0, done.stderr)
        (record,) = [record for record in self.records() if record.get("progress", {}).get("trainer")]
        for name in os.listdir(os.path.join(self.run_folder, "hook")):
            os.remove(os.path.join(self.run_folder, "hook", name))
        return record["progress"]

    def test_a_trainer_goes_on_from_its_checkpoint_with_the_new_micro_batch(self):
        first = self.trained(8, 1, 4)
        self.assertEqual([one["step"] for one in first["checkpoints"]], [2, 4])
        self.assertEqual((first["started_at_step"], first["step"], first["resumed"]), (0, 4, None))
        self.assertEqual(first["batch"], {"micro": 8, "accumulation": 1, "processes": 1})
        path = os.path.join(self.user, "made", "checkpoint-2")
        self.assertEqual(first["checkpoints"][0], {"kind": "transformers", "path": path, "step": 2})
        self.configure(guard={"resume": first["checkpoints"][0]})
        then = self.trained(4, 2, 6)
        self.assertEqual((then["started_at_step"], then["step"], then["resumed"]), (2, 6, path))
        # The checkpoint says 8.
        self.assertEqual(then["batch"], {"micro": 4, "accumulation": 2, "processes": 1})


class Limit(unittest.TestCase):
    """A card of the size would hold the context as well, so that PyTorch gets the rest."""

    def fractions(self, limit):
        given = {}
        cuda = types.SimpleNamespace(
            mem_get_info=lambda device: (11 << 30, 12 << 30),
            set_per_process_memory_fraction=lambda fraction, device: given.update({device: fraction}),
        )
        torch = types.SimpleNamespace(cuda=cuda, _C=types.SimpleNamespace(_cuda_getDeviceCount=lambda: 2))
        guard.Guard(torch, None, {"limit_bytes": limit}).cuda_started()
        return given

    def test_a_limit_is_a_share_of_the_card_less_the_context(self):
        self.assertEqual(self.fractions(7 << 30), {0: 0.5, 1: 0.5})

    def test_no_limit_sets_nothing(self):
        self.assertEqual(self.fractions(None), {})

    def test_a_limit_below_the_context_is_none(self):
        self.assertEqual(self.fractions(1), {0: 0.0, 1: 0.0})


if __name__ == "__main__":
    unittest.main()
