"""Renaming folders where the kernel answers that the names are on different disks."""

import errno
import os
import tempfile
import unittest

import support  # puts the package on the path

from oomph import renames


def refuse_folders(src, dst, *, src_dir_fd=None, dst_dir_fd=None):
    """What `os.rename` does in a private view that was made in a user namespace."""
    if os.path.isdir(src):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), src, None, dst)
    os.rename(src, dst)


class Renames(unittest.TestCase):
    def setUp(self):
        self.assertTrue(renames.__file__.startswith(support.PYTHON))
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.rename = renames._renaming(refuse_folders)
        self.old, self.new = (os.path.join(self.folder.name, name) for name in ("old", "new"))
        os.makedirs(os.path.join(self.old, "inner"))
        with open(os.path.join(self.old, "inner", "file"), "w") as file:
            file.write("text")
        os.symlink("inner/file", os.path.join(self.old, "link"))

    def test_a_folder_is_moved_with_all_that_is_in_it(self):
        self.rename(self.old, self.new)
        self.assertFalse(os.path.exists(self.old))
        with open(os.path.join(self.new, "link")) as file:
            self.assertEqual(file.read(), "text")
        self.assertEqual(os.readlink(os.path.join(self.new, "link")), "inner/file")

    def test_an_empty_folder_is_replaced_and_a_full_one_is_not(self):
        os.mkdir(self.new)
        self.rename(self.old, self.new)
        os.makedirs(os.path.join(self.old, "again"))
        with self.assertRaises(OSError) as raised:
            self.rename(self.old, self.new)
        self.assertEqual(raised.exception.errno, errno.ENOTEMPTY)
        self.assertTrue(os.path.exists(os.path.join(self.old, "again")))

    def test_other_errors_are_the_program_s(self):
        with self.assertRaises(FileNotFoundError):
            self.rename(self.old + "x", self.new)


if __name__ == "__main__":
    unittest.main()
