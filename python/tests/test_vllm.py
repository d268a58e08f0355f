"""vLLM's engine gives up where its share of the card leaves too little for one request: what is made of its error."""

import types
import unittest

from oomph import vllm
from oomph.record import Record

MESSAGE = (
    "To serve at least one request with the model's max seq len (131072), (2.0 GiB KV cache is needed, which is larger "
    "than the available KV cache memory (1.32 GiB). Based on the available memory, the estimated maximum model length is "
    "86288. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
)


class Cache(unittest.TestCase):
    def test_sizes_are_read_from_the_error(self):
        self.assertEqual(vllm.shortage(MESSAGE), (2 << 30, int(1.32 * 2**30)))
        self.assertEqual(vllm.shortage("No available memory for the cache blocks."), (0, 0))

    def test_the_error_is_reported_and_raised_again(self):
        def check(available):
            if available < 2:
                raise ValueError(MESSAGE)
            return "enough"

        module = types.SimpleNamespace(check_enough_kv_cache_memory=check)
        reported = []
        vllm.watch_cache(module, lambda error, needed, available: reported.append((str(error), needed, available)))
        self.assertEqual(module.check_enough_kv_cache_memory(2), "enough")
        self.assertEqual(reported, [])
        with self.assertRaises(ValueError):
            module.check_enough_kv_cache_memory(1)
        self.assertEqual(reported, [(MESSAGE, 2 << 30, int(1.32 * 2**30))])

    def test_what_suffices_is_reported_with_the_share(self):
        def check(available, needed, longest):
            return needed() <= available

        def divide(config, specs):
            return module._check_enough_kv_cache_memory(8, lambda: 3, 4096)

        module = types.SimpleNamespace(_check_enough_kv_cache_memory=check, get_kv_cache_configs=divide)
        heard = []
        vllm.watch_cache(module, lambda *refusal: self.fail("enough"), lambda *sizes: heard.append(sizes))
        vllm.watch_share(module, heard.append)
        cache = types.SimpleNamespace(gpu_memory_utilization=0.9, kv_cache_memory_bytes=None)
        self.assertTrue(module.get_kv_cache_configs(types.SimpleNamespace(cache_config=cache), []))
        self.assertEqual(heard, [0.9, (3, 8)])
        # A cache of a fixed size is not a share of the card.
        cache.kv_cache_memory_bytes = 1 << 30
        module.get_kv_cache_configs(types.SimpleNamespace(cache_config=cache), specs=[])
        self.assertEqual(heard, [0.9, (3, 8), None, (3, 8)])

    def test_the_record_has_the_figures_of_a_single_engine(self):
        record = Record("")
        record.note_cache(3, 8)
        self.assertIsNone(record.as_dict()["engine"], "its share is not known")
        record.note_share(0.9)
        record.note_cache(3, 5)
        self.assertEqual(record.as_dict()["engine"], {"share": 0.9, "needed_bytes": 3, "available_bytes": 5})
        record.note_share(0.9)
        self.assertIsNone(record.as_dict()["engine"], "two engines")

    def test_another_release_without_the_check_is_left_alone(self):
        module = types.SimpleNamespace()
        vllm.watch_cache(module, lambda *refusal: self.fail("nothing to report"))
        self.assertEqual(vars(module), {})


START = (
    "Free memory on device cuda:0 (16.7/23.64 GiB) on startup is less than desired GPU memory utilization (0.92, 21.75 GiB). "
    "Decrease GPU memory utilization or reduce GPU memory used by other processes."
)


class Start(unittest.TestCase):
    def test_a_share_that_is_not_free_is_reported_and_raised_again(self):
        class Worker:
            def init_device(self, message):
                if message:
                    raise ValueError(message)

        reported = []
        refused = lambda error, wanted, free: reported.append((wanted, free))
        vllm.watch_start(types.SimpleNamespace(Worker=Worker), refused)
        Worker().init_device("")
        with self.assertRaises(ValueError):
            Worker().init_device("another error")
        self.assertEqual(reported, [])
        with self.assertRaises(ValueError):
            Worker().init_device(START)
        self.assertEqual(reported, [(int(21.75 * 2**30), int(16.7 * 2**30))])


class Engine(unittest.TestCase):
    def test_a_death_is_told_before_the_program_hears_of_it(self):
        heard = []

        class EngineCoreProc:
            def _send_engine_dead(self):
                heard.append("program")

        self.watch(EngineCoreProc, lambda: heard.append("record"))
        EngineCoreProc()._send_engine_dead()
        self.assertEqual(heard, ["record", "program"])

    def test_the_error_of_an_engine_that_cannot_start_is_heard(self):
        heard = []

        class EngineCoreProc:
            def __init__(self, config):
                raise RuntimeError(config)

            def _send_engine_dead(self):
                pass

        self.watch(EngineCoreProc, lambda: self.fail("it was never alive"), heard.append)
        with self.assertRaises(RuntimeError) as raised:
            EngineCoreProc("no nvcc")
        self.assertEqual(heard, [raised.exception])

    def watch(self, engine, died, failed=None):
        vllm.watch_engine(types.SimpleNamespace(EngineCoreProc=engine), died, failed or self.fail)

    def test_another_release_is_left_alone(self):
        module = types.SimpleNamespace()
        vllm.watch_engine(module, lambda: self.fail("nothing to tell"), self.fail)
        self.assertEqual(vars(module), {})


if __name__ == "__main__":
    unittest.main()
