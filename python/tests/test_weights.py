"""Models whose weights are not on disk: built from the config by the library itself, and said so."""

import importlib.util
import json
import os
import unittest

import support

from oomph import weights

TRANSFORMERS = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
DIFFUSERS = TRANSFORMERS and importlib.util.find_spec("diffusers")
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256, "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}


class WeightsCase(support.RunCase):
    config = {"random_weights": True}

    def folder(self, name, config):
        path = os.path.join(self.user, name)
        os.makedirs(path)
        with open(os.path.join(path, "config.json"), "w") as file:
            json.dump(config, file)
        return path

    def runs(self, program):
        home = os.path.join(self.user, "hf")
        done = self.python(program, env=dict(OFFLINE, HF_HOME=home, CUDA_VISIBLE_DEVICES=""))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout


class MissingWeights(unittest.TestCase):
    """Which exceptions say that weights are not there."""

    def error_of(self, function):
        try:
            function()
        except Exception as error:
            return error

    def test_only_what_a_model_did_not_find(self):
        def from_pretrained():
            raise OSError("Error no file named model.safetensors found in directory x.")

        def train():
            raise OSError("no such file: x")

        self.assertTrue(weights.are_missing(self.error_of(from_pretrained)))
        self.assertFalse(weights.are_missing(self.error_of(train)))
        self.assertFalse(weights.are_missing(None))


@unittest.skipUnless(TRANSFORMERS, "torch and transformers are not installed")
class Hint(WeightsCase):
    """A program that dies for lack of weights leaves a word of what would help, and its own error."""

    config = {"random_weights": False}

    def test_the_record_says_what_would_help(self):
        path = self.folder("model", LLAMA)
        done = self.python(
            "from transformers import AutoModelForCausalLM; AutoModelForCausalLM.from_pretrained(%r)" % path,
            env=dict(OFFLINE, CUDA_VISIBLE_DEVICES=""),
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("OSError", done.stderr)
        warnings = [sentence for record in self.records() for sentence in record["warnings"]]
        self.assertTrue(any("--random-weights" in sentence for sentence in warnings), warnings)


class Missing(WeightsCase):
    """What counts as missing weights."""

    def test_folders(self):
        path = self.folder("model", LLAMA)
        error = OSError("Error no file named model.safetensors found in directory")
        self.assertTrue(weights._weights_missing(error, path, {}))
        with open(os.path.join(path, "model.safetensors"), "wb") as file:
            file.write(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
        self.assertTrue(weights._weights_missing(error, path, {}))
        with open(os.path.join(path, "model.safetensors"), "wb") as file:
            file.write(bytes(2000))
        self.assertFalse(weights._weights_missing(error, path, {}))
        with open(os.path.join(path, "model.safetensors.index.json"), "w") as file:
            json.dump({"weight_map": {"a": "model-00001-of-00002.safetensors"}}, file)
        self.assertTrue(weights._weights_missing(error, path, {}))
        self.assertFalse(weights._weights_missing(error, self.user, {}))

    def test_names(self):
        self.assertTrue(weights._weights_missing(OSError("We couldn't connect to 'https://huggingface.co'"), "a/b", {}))
        self.assertFalse(weights._weights_missing(ValueError("no file named"), "a/b", {}))
        self.assertFalse(weights._weights_missing(OSError("disk full"), "a/b", {}))


@unittest.skipUnless(TRANSFORMERS, "transformers is not installed")
class Transformers(WeightsCase):
    def test_folder(self):
        self.folder("model", LLAMA)
        out = self.runs(
            """
            import torch
            from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
            from oomph import record

            state = torch.get_rng_state()
            model, info = AutoModelForCausalLM.from_pretrained("model", dtype="auto", output_loading_info=True)
            assert not any(info.values()), info
            assert torch.equal(state, torch.get_rng_state())
            assert model.dtype == torch.bfloat16 and model.config._name_or_path == "model"
            assert model.lm_head.weight is model.model.embed_tokens.weight
            assert 0.01 < model.model.layers[0].mlp.up_proj.weight.float().std() < 0.03
            ids = torch.zeros(1, 8, dtype=torch.long)
            assert torch.isfinite(model(ids, labels=ids).loss)
            model = AutoModelForSequenceClassification.from_pretrained("model", num_labels=3, dtype=torch.float16)
            assert model.dtype == torch.float16 and model.score.weight.shape == (3, 64)
            model.save_pretrained("saved")
            again = AutoModelForSequenceClassification.from_pretrained("saved")
            assert torch.equal(again.score.weight, model.score.weight)
            print(record.current().warnings)
            """
        )
        sentence = "weights of model are random: they are not on disk, so the model is built from its config."
        self.assertEqual(out, "%r\n" % [sentence])

    def test_several_models_are_one_warning(self):
        for name in ("one", "two", "three"):
            self.folder(name, LLAMA)
        out = self.runs(
            """
            from oomph import record
            from transformers import AutoModel
            for name in ("one", "two", "three", "one"):
                AutoModel.from_pretrained(name)
            print(record.current().warnings)
            """
        )
        sentence = "weights of one, two and three are random: they are not on disk, so the models are built from their configs."
        self.assertEqual(out, "%r\n" % [sentence])

    def test_large_takes_no_disk(self):
        self.folder("model", dict(LLAMA, hidden_size=2048, intermediate_size=8192))
        self.runs("from transformers import AutoModel; AutoModel.from_pretrained('model')")
        used = size = 0
        for folder, _, files in os.walk(os.path.join(self.run_folder, "scratch", ".weights")):
            for name in files:
                info = os.stat(os.path.join(folder, name))
                used, size = used + info.st_blocks * 512, size + info.st_size
        self.assertGreater(size, 200 << 20)
        self.assertLess(used, 4 << 20)

    def checkpoints(self):
        """The files of weights that were made, by name, with their sizes."""
        found = {}
        for folder, _, files in os.walk(os.path.join(self.run_folder, "scratch", ".weights")):
            found.update((name, os.path.getsize(os.path.join(folder, name))) for name in files if "safetensors" in name)
        return found

    def test_no_file_is_as_large_as_the_model(self):
        # The system refuses to map a file that is larger than the machine's memory.
        self.folder("model", dict(LLAMA, hidden_size=1024, intermediate_size=4096, num_hidden_layers=6))
        out = self.runs(
            """
            from oomph import hollow
            hollow.SHARD_BYTES = 64 << 20
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained("model", dtype="float32")
            print(sum(parameter.numel() * 4 for parameter in model.parameters()), model.model.norm.weight.sum().item())
            """
        )
        size, ones = out.split()
        shards = self.checkpoints()
        index = shards.pop("model.safetensors.index.json")
        self.assertGreater(index, 0)
        self.assertGreater(len(shards), 4)
        self.assertIn("model-00001-of-%05d.safetensors" % len(shards), shards)
        self.assertLess(max(shards.values()), 65 << 20)
        # The embedding is tied, and is in the checkpoint once.
        self.assertAlmostEqual(sum(shards.values()) / int(size), 1, places=2)
        self.assertEqual(float(ones), 1024)

    def test_shards_of_a_variant(self):
        self.folder("model", LLAMA)
        self.runs(
            """
            from oomph import hollow
            hollow.SHARD_BYTES = 64 << 10
            from transformers import AutoModelForCausalLM

            AutoModelForCausalLM.from_pretrained("model", variant="fp16")
            """
        )
        shards = self.checkpoints()
        self.assertIn("model.safetensors.index.fp16.json", shards)
        self.assertIn("model.fp16-00001-of-%05d.safetensors" % (len(shards) - 1), shards)

    def test_cache(self):
        snapshot = "hf/hub/models--org--tiny/snapshots/" + "a" * 40
        self.folder(snapshot, LLAMA)
        refs = os.path.join(self.user, "hf/hub/models--org--tiny/refs")
        os.makedirs(refs)
        with open(os.path.join(refs, "main"), "w") as file:
            file.write("a" * 40)
        out = self.runs(
            """
            from transformers import AutoModelForCausalLM
            from oomph import record

            print(AutoModelForCausalLM.from_pretrained("org/tiny").config._name_or_path)
            try:
                AutoModelForCausalLM.from_pretrained("org/nowhere")
            except OSError:
                print(len(record.current().warnings), record.current().warnings[-1])
            """
        )
        self.assertEqual(out, "org/tiny\n2 %s\n" % (weights._NO_CONFIG % "org/nowhere"))

    def test_other_errors_stay(self):
        self.folder("model", dict(LLAMA, hidden_size="wide"))
        out = self.runs(
            """
            from transformers import AutoModelForCausalLM
            try:
                AutoModelForCausalLM.from_pretrained("model")
            except Exception as error:
                print("oomph" in str(error), bool(error))
            """
        )
        self.assertEqual(out, "False True\n")


@unittest.skipUnless(DIFFUSERS, "diffusers is not installed")
class Diffusers(WeightsCase):
    def test_subfolder(self):
        out = self.runs(
            """
            import torch
            from diffusers import AutoencoderKL
            from oomph import record

            AutoencoderKL(block_out_channels=(32,), norm_num_groups=8).save_config("pipe/vae")
            model = AutoencoderKL.from_pretrained("pipe", subfolder="vae", torch_dtype=torch.float16)
            print(model.dtype, model.config._name_or_path, len(record.current().warnings))
            """
        )
        self.assertEqual(out, "torch.float16 pipe 1\n")


if __name__ == "__main__":
    unittest.main()
