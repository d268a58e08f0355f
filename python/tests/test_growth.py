"""Memory that grows from step to step below the peak."""

import unittest

from oomph.stop import Growth


class GrowthOfALoop(unittest.TestCase):
    def after(self, steps, held):
        growth = Growth()
        for step in range(1, steps + 1):
            growth.after_step(step, held(step))
        return growth.per_step()

    def test_what_each_step_leaves_is_found_however_long_the_loop_is(self):
        for steps in (4, 20, 100, 704, 5000):
            self.assertEqual(self.after(steps, lambda step: 300 + 7 * step), 7)

    def test_steps_that_differ_count_on_the_average(self):
        self.assertEqual(self.after(640, lambda step: 300 * step + 50 * (step % 7)), 300)

    def test_what_stays_or_comes_and_goes_is_no_growth(self):
        self.assertEqual(self.after(500, lambda step: 300), 0)
        self.assertEqual(self.after(500, lambda step: 300 + step % 50), 0)
        # A buffer that is full.
        self.assertEqual(self.after(500, lambda step: min(step, 300)), 0)
        # Two steps after the first say nothing.
        self.assertEqual(self.after(3, lambda step: step), 0)


if __name__ == "__main__":
    unittest.main()
