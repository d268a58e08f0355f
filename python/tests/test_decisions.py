"""Which lines decide by a number whether a program goes on: the sources of loops, as people write them."""

import textwrap
import unittest

from oomph.values import decisions


def deciding(source, read):
    """The line that decides, of a source whose line with `read` in it reads the number."""
    lines = textwrap.dedent(source).strip("\n").split("\n")
    at = next(number for number, line in enumerate(lines, 1) if read in line)
    found = decisions.deciding_line("\n".join(lines), at)
    return None if found is None else lines[found - 1].strip()


class Decisions(unittest.TestCase):
    def test_loops_that_end_by_a_loss(self):
        for source in (
            """
            for step in range(9):
                loss = train()
                if loss.item() < 0.1:
                    break
            """,
            """
            def run(self):
                for step in range(9):
                    self.last = loss.item()
                    print(self.last)
                    if self.last < self.best and step > 3:
                        if quiet:
                            return step
            """,
            """
            while loss.item() > 0.1:
                step()
            """,
            """
            value = float(loss.item())
            while value > 0.1:
                value = float(step())
            """,
        ):
            with self.subTest(source):
                self.assertRegex(deciding(source, ".item()"), "^(if|while) ")

    def test_numbers_that_are_shown_or_checked_decide_nothing(self):
        for source in (
            """
            for step in range(9):
                print(loss.item())
                if step > 3:
                    break
            """,
            """
            value = loss.item()
            if not math.isfinite(value):
                return
            if value < best:
                best = value
                save()
            """,
            """
            value = loss.item()
            if value > 100:
                raise ValueError(value)
            """,
            """
            def other():
                while value:
                    pass
            def run():
                value = loss.item()
            """,
        ):
            with self.subTest(source):
                self.assertIsNone(deciding(source, ".item()"))

    def test_what_is_no_python_says_nothing(self):
        self.assertIsNone(decisions.deciding_line("if loss.item() <", 1))
        self.assertIsNone(decisions.deciding_line("", 1))
        self.assertIsNone(decisions.deciding_line("(" * 10000, 1))


if __name__ == "__main__":
    unittest.main()
