"""What dies in oomph's own code: it is noted, it voids the answer, and where the program may wait for it the run is ended."""

import os
import unittest

import support

WITH_A_FAULT = """
    from oomph import hook, record, faults
    from oomph.meter import Meter

    def fails(*args):
        return args[0].no_such_thing
    fails.__code__ = fails.__code__.replace(co_filename=faults.__file__.replace("faults.py", "values/copies.py"))
    hook.install()
    record.current().frameworks["torch"] = "2.15.0"
"""
"""A function of the hook that fails, by its place: no library is broken for it."""


class Faults(support.RunCase):
    def run_with(self, program):
        text = "\n".join(line.strip("\n") for line in (WITH_A_FAULT + program).splitlines())
        done = self.python(text, env={"OOMPH_HOOK_DEBUG": ""})
        found = [fault for one in self.records() for fault in one["faults"]]
        return done, found, os.path.exists(os.path.join(self.run_folder, "fault"))

    def test_what_is_swallowed_is_noted_and_the_answer_stands(self):
        done, found, ends = self.run_with(
            """
    print(hook.guarded(fails, 1))
    record.current().write_if_used()
            """
        )
        self.assertEqual((done.stdout, done.stderr, ends), ("None\n", "", False))
        self.assertEqual([(one["kind"], one["voids"]) for one in found], [("AttributeError", False)])
        self.assertEqual(found[0]["site"]["file"], "oomph/values/copies.py")

    def test_what_the_answer_hangs_on_voids_it_and_the_program_goes_on(self):
        done, found, ends = self.run_with("    print(hook.needed(fails, 1))")
        self.assertEqual((done.stdout, [one["voids"] for one in found], ends), ("None\n", [True], False))

    def test_a_thread_that_feeds_a_queue_and_dies_of_oomph_ends_the_run(self):
        done, found, ends = self.run_with(
            """
    import multiprocessing.queues, time
    from oomph import ends
    ends._wrap_feeders(multiprocessing.queues)

    class Batch:
        def __reduce__(self):
            return fails(self)

    queue = multiprocessing.Queue()
    queue.put(Batch())
    for _ in range(500):
        if record.current().faults:
            break
        time.sleep(0.01)
    time.sleep(0.1)
            """
        )
        self.assertIn("no_such_thing", done.stderr, "the program's own message is there")
        self.assertEqual(([one["voids"] for one in found], ends), ([True], True))

    def test_what_the_program_raises_is_the_programs(self):
        done, found, ends = self.run_with(
            """
    def own(*args):
        raise ValueError("own")
    def passes(*args):
        return int(*args)
    passes.__code__ = passes.__code__.replace(co_filename=fails.__code__.co_filename)
    for call in (lambda: hook.needed(own), lambda: hook.needed(passes, "x"), lambda: hook.needed(open, "/no/such"),
                 lambda: hook.needed(fails.__class__)):
        call()
    try:
        passes("x")
    except ValueError as error:
        faults.reached(error)
    try:
        fails(1)
    except AttributeError as error:
        faults.reached(faults.acquitted(error))
    record.current().write()
            """
        )
        self.assertEqual((found, ends, done.stderr), ([], False, ""))


if __name__ == "__main__":
    unittest.main()
