"""Commands that a program starts: they change nothing of the user's, and see what the run has written."""

import os
import unittest

import support


class Commands(support.RunCase):
    def setUp(self):
        super().setUp()
        self.before = self.snapshot()
        self.addCleanup(lambda: self.assertEqual(self.snapshot(), self.before))

    def test_removing(self):
        out = self.passes(
            """
            import os, subprocess
            print(subprocess.run(["rm", "-rf", "out/checkpoint-1"]).returncode, os.path.exists("out/checkpoint-1"))
            print(os.system("rm out/log.txt && rmdir out"), os.path.exists("out"))
            print(subprocess.run("rm none; rm -f none", shell=True, stderr=subprocess.PIPE, text=True).stderr, end="")
            print(subprocess.run(["rm", "none"], stderr=subprocess.DEVNULL).returncode)
            """
        )
        self.assertEqual(out, "0 False\n0 False\nrm: cannot remove 'none': No such file or directory\n1\n")

    def test_copying_moving_and_making(self):
        out = self.passes(
            """
            import os, subprocess
            with open("new.txt", "w") as f: f.write("new")
            os.system("mkdir -p deep/er; cp -r out deep/er; mv new.txt data.txt; cp -t deep data.txt; touch t; ln -s t l")
            print(sorted(os.listdir(".")), sorted(os.listdir("deep")), os.path.islink("l"))
            print(open("data.txt").read(), open("deep/data.txt").read(), open("deep/er/out/log.txt").read(), end="")
            print(subprocess.check_output(["cp", "-n", "data.txt", "deep/er/out/log.txt"]), open("deep/er/out/log.txt").read(), end="")
            """
        )
        self.assertEqual(
            out,
            "['data.txt', 'deep', 'l', 'out', 't'] ['data.txt', 'er'] True\nnew new old\nb'' old\n",
        )

    def test_large_files_stay_holes(self):
        out = self.passes(
            """
            import os, shutil, subprocess
            with open("big", "wb") as f:
                f.write(b"head"); f.truncate(1 << 30)
            subprocess.check_call(["cp", "big", "big2"]); shutil.copy("big2", "out/log.txt")
            print(os.path.getsize("out/log.txt") >> 20, open("out/log.txt", "rb").read(4), os.stat("out/log.txt").st_blocks * 512 < 1 << 24)
            """
        )
        self.assertEqual(out, "1024 b'head' True\n")

    def test_elsewhere_the_own_command_runs(self):
        place = os.path.join(self.run_folder, "free")
        os.makedirs(place)
        out = self.passes(
            """
            import os, subprocess, sys
            os.chdir(sys.argv[1])
            print(subprocess.run("touch -d 2001-01-01T00:00 a && cp -a a b && rm a", shell=True).returncode, os.listdir("."))
            print(int(os.stat("b").st_mtime) < 10**9)
            """,
            place,
        )
        self.assertEqual(out, "0 ['b']\nTrue\n")
        self.assertEqual(os.listdir(place), ["b"])

    def test_what_is_not_understood_or_leaves_the_machine_is_not_run(self):
        out = self.passes(
            """
            import subprocess
            for words in (["rm", "--strange", "data.txt"], ["aws", "s3", "cp", "data.txt", "s3://bucket/"], ["scp", "data.txt", "host:"]):
                done = subprocess.run(words, stderr=subprocess.PIPE, text=True)
                print(done.returncode, done.stderr.startswith("oomph: %s was not run in this dry run" % words[0]))
            """
        )
        self.assertEqual(out, "0 True\n" * 3)

    def test_a_child_with_an_environment_of_its_own(self):
        self.assertEqual(
            self.passes("import os, subprocess; subprocess.check_call(['rm', 'data.txt'], env={}); print(os.path.exists('data.txt'))"),
            "False\n",
        )


if __name__ == "__main__":
    unittest.main()
