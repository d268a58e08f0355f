"""Checkpoints: small ones are real, large ones take no room, both can be read back and none reaches its place."""

import os
import tempfile
import unittest
import zipfile
import zlib

import support

from oomph import sparsezip

try:
    import torch
except ImportError:
    torch = None


class SparseZip(unittest.TestCase):
    def test_crc_of_zeros(self):
        for count in (0, 1, 65536, 65537, 1000003, 5 << 20):
            self.assertEqual(sparsezip.crc_of_zeros(count), zlib.crc32(bytes(count)), count)

    def test_is_an_ordinary_archive(self):
        with tempfile.TemporaryFile() as file:
            writer = sparsezip.SparseZipWriter(file, "model")
            writer.write_record("data.pkl", b"pickle", 6)
            writer.write_record("data/0", bytearray(b"\1" * (60 << 20)), 60 << 20)
            writer.write_record("data/1", bytearray(b"\1" * (9 << 20)), 9 << 20)
            writer.write_record("data/2", None, 5 << 30)
            writer.write_record("data/3", "text", 4)
            writer.write_end_of_file()
            file.flush()
            self.assertLess(os.fstat(file.fileno()).st_blocks * 512, 70 << 20)
            archive = zipfile.ZipFile(file)
            self.assertEqual(archive.read("model/data.pkl"), b"pickle")
            self.assertEqual(archive.read("model/data/0")[:2], b"\1\1")
            self.assertEqual(archive.read("model/data/1"), bytes(9 << 20))
            self.assertEqual(archive.getinfo("model/data/2").file_size, 5 << 30)
            self.assertEqual((archive.read("model/data/3"), archive.read("model/version")), (b"text", b"3\n"))


class Copies(unittest.TestCase):
    def test_holes_stay_holes_and_data_is_copied(self):
        import shutil

        from oomph import sparsecopy

        self.addCleanup(setattr, shutil, "_fastcopy_sendfile", getattr(shutil, "_fastcopy_sendfile", None))
        sparsecopy.install()
        with tempfile.TemporaryDirectory() as folder:
            source, target = os.path.join(folder, "a"), os.path.join(folder, "b")
            with open(source, "wb") as file:
                file.write(b"head" * 4096)
                file.seek(40 << 20)
                file.write(b"middle" * 100000)
                file.truncate(90 << 20)
            shutil.copy(source, target)
            with open(source, "rb") as one, open(target, "rb") as other:
                self.assertEqual(one.read(), other.read())
            self.assertLess(os.stat(target).st_blocks * 512, 2 << 20)
            # What holds all of its bytes is copied by the library.
            with open(source, "wb") as file:
                file.write(b"\1" * (3 << 20))
            shutil.copy(source, target)
            self.assertEqual(os.path.getsize(target), 3 << 20)
            with open(target, "rb") as file:
                self.assertEqual(file.read().count(b"\1"), 3 << 20)


@unittest.skipIf(torch is None, "torch is not installed")
class Checkpoints(support.RunCase):
    def setUp(self):
        super().setUp()
        self.before = self.snapshot()
        self.addCleanup(lambda: self.assertEqual(self.snapshot(), self.before))

    def usage(self):
        total = 0
        for folder, _, files in os.walk(os.path.join(self.run_folder, "scratch")):
            total += sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in files)
        return total

    def test_small(self):
        out = self.passes(
            """
            import io, torch, warnings
            warnings.simplefilter("ignore")
            value = {"w": torch.arange(5.0), "step": 3, "t": torch.ones(3, 3).t()}
            torch.save(value, "out/checkpoint-1/model.bin")
            back = torch.load("out/checkpoint-1/model.bin"); print(back["w"].tolist(), back["step"], back["t"].sum().item())
            with open("m.pt", "wb") as f: torch.save(value, f)
            with open("m.pt", "rb") as f: print(torch.load(f)["step"])
            b = io.BytesIO(); torch.save(value, b); b.seek(0); print(torch.load(b)["step"])
            try: torch.save(value, "none/m.pt")
            except RuntimeError as e: print(e)
            m = torch.jit.script(torch.nn.Linear(2, 2)); torch.jit.save(m, "s.pt"); print(torch.jit.load("s.pt").weight.shape)
            torch.save(value, "old.pt", _use_new_zipfile_serialization=False); print(torch.load("old.pt")["step"])
            """
        )
        self.assertEqual(out.splitlines()[:3], ["[0.0, 1.0, 2.0, 3.0, 4.0] 3 9.0", "3", "3"])
        self.assertIn("Parent directory none does not exist", out)

    def test_large(self):
        out = self.passes(
            """
            import os, resource, torch, warnings
            warnings.simplefilter("ignore")
            value = {"a": torch.ones(30 << 20), "b": torch.ones(1 << 28, dtype=torch.float16), "n": torch.arange(4)}
            torch.save(value, "model.pt"); print(os.path.getsize("model.pt") >> 20)
            back = torch.load("model.pt"); print(back["b"].shape, back["b"].dtype, back["n"].tolist(), back["b"][5].item())
            del value, back
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            with open("model.pt", "rb") as f: both = torch.load(f), torch.load("model.pt")
            back = torch.load("model.pt", mmap=True); print(back["n"].tolist(), back["a"][7].item())
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10)
            """
        )
        self.assertEqual(out, "632\ntorch.Size([268435456]) torch.float16 [0, 1, 2, 3] 0.0\n[0, 1, 2, 3] 0.0\nTrue\n")
        self.assertLess(self.usage(), 70 << 20)

    def test_older_format_and_several_in_one_file(self):
        out = self.passes(
            """
            import os, torch, warnings
            warnings.simplefilter("ignore")
            value = {"a": torch.ones(30 << 20), "b": torch.ones(1 << 28, dtype=torch.float16), "n": torch.arange(4)}
            torch.save(value, "old.pt", _use_new_zipfile_serialization=False); print(os.path.getsize("old.pt") >> 20)
            back = torch.load("old.pt"); print(back["b"].shape, back["n"].tolist(), back["a"][7].item(), back["b"][5].item())
            with open("several.pt", "wb") as f:
                for part in (value["n"], value["b"], value["n"] + 1): torch.save(part, f)
            print(os.path.getsize("several.pt") >> 20)
            """
        )
        self.assertEqual(out, "632\ntorch.Size([268435456]) [0, 1, 2, 3] 0.0 0.0\n512\n")
        self.assertLess(self.usage(), 10 << 20)

    def test_distributed_checkpoint(self):
        out = self.passes(
            """
            import os, torch, warnings
            warnings.simplefilter("ignore")
            import torch.distributed.checkpoint as dcp
            value = {"b": torch.ones(1 << 28, dtype=torch.float16), "n": torch.arange(4)}
            dcp.save(value, checkpoint_id="out/dcp"); print(sorted(os.listdir("out/dcp")))
            back = {"n": torch.zeros(4, dtype=torch.int64)}
            dcp.load(back, checkpoint_id="out/dcp"); print(back["n"].tolist())
            """,
        )
        self.assertEqual(out, "['.metadata', '__0_0.distcp']\n[0, 1, 2, 3]\n")
        self.assertLess(self.usage(), 70 << 20)

    def test_pickle_and_script_are_real_and_elsewhere(self):
        out = self.passes(
            """
            import pickle, torch, warnings
            warnings.simplefilter("ignore")
            with open("out/log.txt", "wb") as f: pickle.dump({"w": torch.arange(1 << 20)}, f)
            with open("out/log.txt", "rb") as f: print(pickle.load(f)["w"].shape)
            torch.jit.save(torch.jit.script(torch.nn.Linear(1024, 1024)), "data.txt"); print(torch.jit.load("data.txt").weight.shape)
            """
        )
        self.assertEqual(out, "torch.Size([1048576])\ntorch.Size([1024, 1024])\n")
        self.assertGreater(self.usage(), 12 << 20)

    def test_safetensors(self):
        if self.python("import safetensors.torch").returncode:
            self.skipTest("safetensors is not installed")
        out = self.passes(
            """
            import os, torch
            from safetensors import safe_open
            from safetensors.torch import load_file, save_file
            save_file({"w": torch.arange(3)}, "s.safetensors"); print(load_file("s.safetensors")["w"].tolist())
            big = {"b": torch.ones(1 << 28, dtype=torch.bfloat16), "n": torch.arange(4), "s": torch.tensor(2.5)}
            save_file(big, "out/big.safetensors", metadata={"format": "pt"}); print(os.path.getsize("out/big.safetensors") >> 20)
            back = load_file("out/big.safetensors"); print(back["b"].shape, back["n"].tolist(), back["s"].item())
            with safe_open("out/big.safetensors", framework="pt") as f: print(sorted(f.keys()), f.metadata(), f.get_slice("b").get_shape())
            w = torch.ones(20 << 20)
            try: save_file({"a": w, "b": w}, "x.safetensors")
            except RuntimeError as e: print("share memory" in str(e))
            """
        )
        self.assertEqual(
            out.splitlines(),
            ["[0, 1, 2]", "512", "torch.Size([268435456]) [0, 1, 2, 3] 2.5", "['b', 'n', 's'] {'format': 'pt'} [268435456]", "True"],
        )
        self.assertLess(self.usage(), 10 << 20)

    def test_tokenizers(self):
        if self.python("import tokenizers").returncode:
            self.skipTest("tokenizers is not installed")
        out = self.passes(
            """
            import os, tokenizers
            t = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
            os.makedirs("tok"); t.save("tok/tokenizer.json"); t.save("data.txt")
            print(os.listdir("tok"), tokenizers.Tokenizer.from_file("tok/tokenizer.json").get_vocab())
            print([os.path.relpath(p) for p in t.model.save("tok")], sorted(os.listdir("tok")))
            """
        )
        self.assertEqual(out, "['tokenizer.json'] {'a': 0}\n['tok/vocab.json'] ['tokenizer.json', 'vocab.json']\n")

    def test_exit_and_steps_are_recorded(self):
        out = self.python(
            """
            import sys, torch
            model = torch.nn.Linear(2, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(5):
                model(torch.ones(1, 2)).sum().backward(); optimizer.step()
            try: raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            except RuntimeError as e: raise ValueError("wrapped") from e
            """
        )
        self.assertEqual(out.returncode, 1)
        self.assertNotIn("oomph", out.stderr)
        found = self.records()[0]
        self.assertEqual((found["optimizer_steps"], found["frameworks"]["torch"]), (5, str(torch.__version__)))
        self.assertEqual((found["oom"]["fatal"], found["oom"]["requested_bytes"], found["oom"]["step"]), (True, 2 << 30, 6))


if __name__ == "__main__":
    unittest.main()
