"""What a program does to its files is seen by the program and by nobody else."""

import os
import unittest

import support


class Overlay(support.RunCase):
    def setUp(self):
        super().setUp()
        self.before = self.snapshot()
        self.addCleanup(lambda: self.assertEqual(self.snapshot(), self.before))

    def test_overwrite_and_read_back(self):
        out = self.passes(
            """
            import os
            with open("data.txt", "w") as f: f.write("new")
            print(open("data.txt").read(), os.path.getsize("data.txt"), f.name)
            with open(os.path.abspath("data.txt"), "rb") as f: print(f.read(), f.name == os.path.abspath("data.txt"))
            """
        )
        self.assertEqual(out, "new 3 data.txt\nb'new' True\n")

    def test_append_and_update_copy_first(self):
        out = self.passes(
            """
            with open("data.txt", "a") as f: f.write("more")
            with open("out/log.txt", "r+") as f: f.write("OLD")
            print(repr(open("data.txt").read()), repr(open("out/log.txt").read()))
            """
        )
        self.assertEqual(out, "'data\\nmore' 'OLD\\n'\n")

    def test_exclusive_and_missing(self):
        out = self.passes(
            """
            import os
            for name, mode in (("data.txt", "x"), ("none/file", "w"), ("none", "r"), ("none", "r+"), ("out", "w")):
                try: open(name, mode)
                except OSError as e: print(type(e).__name__, e.filename)
            open("new", "x").close()
            try: open("new", "x")
            except FileExistsError as e: print("exists", e.filename)
            fd = os.open("lock", os.O_CREAT | os.O_EXCL | os.O_RDWR); os.close(fd)
            try: os.open("lock", os.O_CREAT | os.O_EXCL)
            except FileExistsError: print("locked")
            """
        )
        self.assertEqual(
            out.split("\n"),
            ["FileExistsError data.txt", "FileNotFoundError none/file", "FileNotFoundError none", "FileNotFoundError none",
             "IsADirectoryError out", "exists new", "locked", ""],
        )

    def test_remove_rename_and_list(self):
        out = self.passes(
            """
            import os, pathlib
            os.remove("data.txt")
            print(os.path.exists("data.txt"), sorted(os.listdir(".")))
            os.rename("out/log.txt", "moved.txt")
            print(open("moved.txt").read().strip(), os.listdir("out"), sorted(e.name for e in os.scandir(".")))
            os.replace("out", "elsewhere")
            print(os.path.isdir("out"), open("elsewhere/checkpoint-1/model.bin").read())
            with open("elsewhere/checkpoint-1/model.bin", "a") as f: f.write("er")
            print(open("elsewhere/checkpoint-1/model.bin").read(), sorted(str(p) for p in pathlib.Path(".").rglob("*")))
            os.mkdir("out"); print(os.listdir("out")); os.rmdir("out"); print(os.path.exists("out"))
            """
        )
        self.assertEqual(
            out.split("\n"),
            ["False ['out']", "old ['checkpoint-1'] ['moved.txt', 'out']", "False dear",
             "dearer ['elsewhere', 'elsewhere/checkpoint-1', 'elsewhere/checkpoint-1/model.bin', 'moved.txt']",
             "[]", "False", ""],
        )

    def test_rmtree_and_make_again(self):
        out = self.passes(
            """
            import os, shutil
            shutil.rmtree("out")
            print(os.path.exists("out/log.txt"), os.listdir("."))
            os.makedirs("out/checkpoint-2")
            open("out/checkpoint-2/model.bin", "w").close()
            print(sorted(os.listdir("out")), [x for x in os.walk("out")])
            shutil.copytree("out", "copy"); shutil.move("copy", "copy2")
            print(sorted(os.listdir(".")), os.listdir("copy2/checkpoint-2"))
            """
        )
        self.assertEqual(
            out.split("\n"),
            ["False ['data.txt']",
             "['checkpoint-2'] [('out', ['checkpoint-2'], []), ('out/checkpoint-2', [], ['model.bin'])]",
             "['copy2', 'data.txt', 'out'] ['model.bin']", ""],
        )

    def test_rotation_of_checkpoints(self):
        """What Trainer does with save_total_limit: the user's own checkpoint goes only in the program's eyes."""
        out = self.passes(
            """
            import glob, os, pathlib, shutil
            for step in (2, 3):
                os.makedirs("out/checkpoint-%d" % step, exist_ok=True)
                pathlib.Path("out/checkpoint-%d/model.bin" % step).write_text("meaningless")
                found = sorted(map(str, pathlib.Path("out").glob("checkpoint-*")))
                for old in found[:-1]: shutil.rmtree(old, ignore_errors=True)
                print(sorted(glob.glob("out/checkpoint-*")))
            """
        )
        self.assertEqual(out, "['out/checkpoint-2']\n['out/checkpoint-3']\n")

    def test_a_new_folder_is_empty(self):
        """What Trainer does with an output folder into which nothing is ever saved."""
        out = self.passes(
            """
            import os, pathlib
            os.makedirs("runs/one", exist_ok=True)
            print(os.listdir("runs/one"), list(os.scandir("runs/one")), next(os.walk("runs/one")))
            print(os.listdir("runs"), list(pathlib.Path("runs/one").glob("checkpoint-*")))
            """
        )
        self.assertEqual(out, "[] [] ('runs/one', [], [])\n['one'] []\n")

    def test_directory_descriptors(self):
        out = self.passes(
            """
            import os
            fd = os.open("out", os.O_RDONLY)
            os.unlink("log.txt", dir_fd=fd)
            with os.fdopen(os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=fd), "w") as f: f.write("1")
            print(sorted(os.listdir(fd)), os.stat("x", dir_fd=fd).st_size, os.path.exists("out/log.txt"))
            print([n for n in os.fwalk("out")][0][1:3])
            """
        )
        self.assertEqual(out, "['checkpoint-1', 'x'] 1 False\n(['checkpoint-1'], ['x'])\n")

    def test_links(self):
        out = self.passes(
            """
            import os, pathlib
            os.symlink("out/checkpoint-1", "latest")
            print(os.readlink("latest"), open("latest/model.bin").read(), os.path.islink("latest"), os.path.realpath("latest") == os.path.abspath("out/checkpoint-1"))
            with open("latest/new", "w") as f: f.write("n")
            print(open("out/checkpoint-1/new").read())
            os.remove("latest"); os.symlink("nowhere", "latest"); print(os.path.exists("latest"), os.path.lexists("latest"))
            os.link("data.txt", "hard")
            with open("hard", "w") as f: f.write("h")
            print(open("data.txt").read().strip(), open("hard").read())
            """
        )
        self.assertEqual(out, "out/checkpoint-1 dear True True\nn\nFalse True\ndata h\n")

    def test_change_of_directory(self):
        out = self.passes(
            """
            import os, pathlib, subprocess, sys
            os.makedirs("runs/today"); home = os.getcwd(); os.chdir("runs/today")
            print(os.path.relpath(os.getcwd(), home), pathlib.Path.cwd() == pathlib.Path(home, "runs/today"))
            with open("x", "w") as f: f.write("1")
            print(os.listdir(), os.path.exists(os.path.join(home, "runs/today/x")), open("../../data.txt").read().strip())
            os.chdir(home); print(os.listdir("runs/today"))
            print(subprocess.run([sys.executable, "-c", "print(open('x').read())"], cwd="runs/today", stdout=subprocess.PIPE).stdout)
            """
        )
        self.assertEqual(out, "runs/today True\n['x'] True data\n['x']\nb'1\\n'\n")

    def test_other_processes_see_it(self):
        out = self.passes(
            """
            import os, subprocess, sys
            with open("data.txt", "w") as f: f.write("shared")
            code = "print(open('data.txt').read()); open('back', 'w').write('b'); import os; os.remove('out/log.txt')"
            sys.stdout.write(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE).stdout.decode())
            print(open("back").read(), os.path.exists("out/log.txt"))
            pid = os.fork()
            if pid == 0:
                open("forked", "w").write("f"); os._exit(0)
            os.waitpid(pid, 0); print(open("forked").read())
            """
        )
        self.assertEqual(out, "shared\nb False\nf\n")

    def test_attributes_and_truncate(self):
        out = self.passes(
            """
            import os, pathlib
            os.utime("data.txt"); os.chmod("data.txt", 0o600); pathlib.Path("data.txt").touch()
            os.truncate("data.txt", 2); print(open("data.txt").read(), os.access("data.txt", os.W_OK))
            pathlib.Path("touched").touch(); print(os.path.getsize("touched"), pathlib.Path("touched").exists())
            pathlib.Path("out/log.txt").unlink(); pathlib.Path("out/p").mkdir(); pathlib.Path("out/p/q").write_bytes(b"q")
            print(sorted(p.name for p in pathlib.Path("out").iterdir()), pathlib.Path("out/p/q").read_bytes())
            """
        )
        self.assertEqual(out, "da True\n0 True\n['checkpoint-1', 'p'] b'q'\n")

    def test_temporary_files_are_real(self):
        out = self.passes(
            """
            import os, tempfile
            with tempfile.TemporaryDirectory() as d:
                open(os.path.join(d, "x"), "w").write("1")
                print(os.system("test -s %s/x" % d))
                os.rename(os.path.join(d, "x"), "carried"); print(open("carried").read(), os.listdir(d))
                os.rename("data.txt", os.path.join(d, "out")); print(os.system("test -s %s/out" % d), os.path.exists("data.txt"))
            with tempfile.NamedTemporaryFile() as f: f.write(b"x")
            with tempfile.TemporaryFile(dir=".") as f: f.write(b"x")
            open(os.devnull, "w").write("x")
            """
        )
        self.assertEqual(out, "0\n1 []\n0 False\n")

    def test_sqlite(self):
        out = self.passes(
            """
            import sqlite3
            c = sqlite3.connect("runs.db"); c.execute("create table t(x)"); c.execute("insert into t values (7)"); c.commit(); c.close()
            print(sqlite3.connect("runs.db").execute("select x from t").fetchall())
            """
        )
        self.assertEqual(out, "[(7,)]\n")


class Allowed(support.RunCase):
    config = {"allow_writes": True}

    def test_writes_are_real_when_wanted(self):
        self.passes("open('real', 'w').write('r'); import os; os.remove('data.txt')")
        self.assertTrue(os.path.exists(os.path.join(self.user, "real")))
        self.assertFalse(os.path.exists(os.path.join(self.user, "data.txt")))


if __name__ == "__main__":
    unittest.main()
