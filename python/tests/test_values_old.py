"""Values that are older than their block: nothing that was not computed is answered as if it had been."""

import os
import sys
import unittest
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import test_values
from test_values import DEVICE, Case, torch

if torch is not None:
    from oomph.values import blocks, decoders, quick, unknown

TALL, WIDE = 512, 1024


def setUpModule():
    test_values.setUpModule()


class Old(Case):
    """A tensor whose values are known lay where something now lies that was never computed."""

    def level(self, tensor):
        return test_values.session.kernels.unknowns.level(tensor)

    def large(self):
        return torch.empty(TALL, WIDE, device=DEVICE)

    def scores(self):
        """A product of large matrices, of which few numbers are looked at; at most a block for ids lay there before."""
        return torch.empty(4096, 1024, device=DEVICE) @ torch.empty(1024, 32, device=DEVICE)

    def noted_where(self, tensor):
        """Notes that the block of a tensor holds something known, as of an earlier one in its place."""
        test_values.session.kernels.unknowns.blocks[blocks.address_of(tensor)] = unknown.KNOWN

    def test_a_view_in_inference_mode_is_as_unknown_as_its_block(self):
        with torch.inference_mode():
            scores = self.scores()
            self.noted_where(scores)
            self.assertEqual(self.level(scores[:, 1]), unknown.UNKNOWN)
            self.assertEqual(self.level(scores[3, 4]), unknown.UNKNOWN)
            mask = scores[:, 1] > scores[:, 0]
            self.assertEqual(self.level(mask), unknown.UNKNOWN)
            self.assertEqual(len(torch.empty(4096, 4, device=DEVICE)[mask]), 4096)
        self.assertTrue(test_values.heard.sizes)

    def test_a_view_in_an_operation_of_the_programs_own_is_as_unknown_as_its_block(self):
        seen = []

        @torch.library.custom_op("oomph_test::views", mutates_args=())
        def views(x: torch.Tensor) -> torch.Tensor:
            self.noted_where(x)
            seen.append(self.level(x[:, 0]))
            return x[:1].clone()

        class Views(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                self.noted_where(x)
                seen.append(self.level(x[:, 0]))
                return x[:1].clone()

        views(self.scores())
        Views.apply(self.scores())
        self.assertEqual(seen, [unknown.UNKNOWN] * 2)

    def test_a_part_of_a_large_block_that_is_written_says_nothing_of_the_rest(self):
        with torch.inference_mode():
            cache = self.large()
            cache[:, 0] = 1
            self.assertEqual(self.level(cache[:, 1]), unknown.UNKNOWN)

    def test_a_part_of_an_unknown_block_that_is_written_leaves_the_rest_unknown(self):
        with torch.inference_mode():
            sums = self.large().sum(0)
            sums[:4] = torch.ones(4, device=DEVICE)
            sums[4].fill_(1)
            self.assertEqual(self.level(sums), unknown.UNKNOWN)
            sums[:] = 1
            self.assertEqual(self.level(sums), unknown.KNOWN)

    def test_aliases_of_inference_mode_can_be_written_to_after_it(self):
        with torch.inference_mode():
            first = (torch.arange(8, dtype=torch.int16, device=DEVICE) > 3).nonzero()
        second = (self.large().sum(0).to(torch.int16) > 3).nonzero()
        self.assertEqual((len(first), len(second)), (4, WIDE))

    @unittest.skipUnless(DEVICE == "cuda", "needs a virtual GPU")
    def test_what_was_noted_of_a_place_ends_with_its_block(self):
        old = torch.arange(64, device=DEVICE)
        address = old.data_ptr()
        del old
        new = torch.empty(64, dtype=torch.int64, device=DEVICE)
        self.assertEqual(new.data_ptr(), address)
        self.assertEqual(self.level(new), unknown.BLANK)
        self.assertEqual(new.tolist(), [0] * 64)
        self.assertEqual(test_values.session.kernels.unknowns.of.bytes_of(new[3:]), 512)

    @unittest.skipUnless(DEVICE == "cuda", "needs a virtual GPU")
    def test_a_card_that_is_full_is_an_error_as_before(self):
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            torch.empty(1 << 50, dtype=torch.uint8, device=DEVICE)
        self.assertEqual(torch.arange(4, device=DEVICE).tolist(), [0, 1, 2, 3])

    def test_a_storage_is_read_without_an_object_for_it(self):
        read = blocks.storage_reader(torch)
        for tensor in (torch.empty(7, 5), torch.empty(3, dtype=torch.int64)[1:], torch.empty(11, dtype=torch.bool)):
            self.assertEqual(read(tensor), tensor.untyped_storage().nbytes())


class Loops(Case):
    """What is read of something unknown lets loops go on."""

    def unknown_flags(self):
        return torch.empty(512, 1024, device=DEVICE).sum(0) > 1

    def test_a_loop_with_a_limit_is_not_left(self):
        rounds = 0
        for _ in range(5):
            rounds += 1
            if self.unknown_flags().all():
                break
        self.assertEqual(rounds, 5)

    def test_a_condition_with_another_part_goes_on(self):
        rounds = 0
        while rounds < 5 and not self.unknown_flags().all():
            rounds += 1
        self.assertEqual(rounds, 5)

    def test_a_name_that_ends_the_loop_is_followed(self):
        rounds, done = 0, False
        while not done and rounds < 5:
            rounds += 1
            if self.unknown_flags().all():
                done = True
        self.assertEqual(rounds, 5)

    def test_a_guess_is_not_overruled(self):
        rounds = 0
        for _ in range(5):
            rounds += 1
            token = torch.empty(2, 50000, device=DEVICE).argmax(-1)
            if (token >= 0).all():
                break
        self.assertEqual(rounds, 1)

    def test_equal_scores_are_taken_from_the_middle(self):
        scores = torch.zeros(2, 30)
        scores[:, 9:] = -1e9
        self.assertEqual(decoders.best(torch, scores, 3).tolist(), [[3, 4, 5]] * 2)
        scores[1, 20] = 1
        self.assertEqual(decoders.best(torch, scores, 2).tolist(), [[3, 4], [20, 0]])
        self.assertEqual(decoders.best(torch, scores[:1], 12).tolist()[0][:9], list(range(9)))

    def loop(self, body, **config):
        """Runs `body` as a decoder loop with this configuration."""
        class Mixin:
            def _sample(self, generation_config):
                return body()

        decoders.watch(unittest.mock.Mock(GenerationMixin=Mixin), test_values.session.warn)
        return Mixin()._sample(generation_config=unittest.mock.Mock(num_beam_groups=1, **config))

    def test_tokens_that_end_a_text_are_not_taken(self):
        def greedy():
            return decoders.places(30, 10, 4)

        self.assertEqual(self.loop(greedy, num_beams=1, eos_token_id=2), [10, 11, 12, 13])
        self.assertEqual(self.loop(greedy, num_beams=1, eos_token_id=[10, 12, 13]), [11, 14, 15, 16])
        # The middle of three beams begins with the vocabulary's first token.
        self.assertEqual(self.loop(greedy, num_beams=3, eos_token_id=[1, 2]), [10, 13, 14, 15])
        self.assertIsNone(self.loop(greedy, num_beams=3, eos_token_id=None), "any token will do")
        self.assertIsNone(self.loop(greedy, num_beams=10, eos_token_id=5), "these are not scores of tokens")
        self.assertIsNone(greedy(), "no loop is under way")

        def beams():
            return decoders.best(torch, torch.zeros(1, 30), 4).tolist()

        self.assertEqual(self.loop(beams, num_beams=3, eos_token_id=[1, 2]), [[10, 13, 14, 15]])

    def test_a_beam_search_that_draws_takes_from_beams_that_count(self):
        scores = torch.zeros(2, 30, device=DEVICE)
        scores[:, 6:] = -1e9
        test_values.session.kernels.unknowns.change(scores, unknown.UNKNOWN)
        asks = unittest.mock.Mock(return_value=True)
        with unittest.mock.patch.object(decoders, "asks", asks), unittest.mock.patch.object(quick, "asks", asks):
            def draws():
                return torch.multinomial(scores.softmax(-1), 2).cpu().tolist()

            self.assertEqual(self.loop(draws, num_beams=5, eos_token_id=3), [[2, 4]] * 2)

    def test_the_largest_of_positions_that_were_not_computed_is_one_of_them(self):
        lengths = torch.full((3,), 7, device=DEVICE)
        test_values.session.kernels.unknowns.change(lengths, unknown.UNKNOWN)
        with unittest.mock.patch.object(decoders, "asks", return_value=True):
            self.assertEqual(int(lengths.max()), 7)

    def test_a_loop_within_a_loop_is_not_said_each_time(self):
        def draft():
            test_values.session.warn.guessed_tokens += 1
            return torch.ones(1, 3)

        def drafts():
            for limit in (20, 21):
                self.loop(draft, max_length=limit, num_beams=1, eos_token_id=2)
            return torch.ones(1, 30)

        self.loop(drafts, max_length=30, num_beams=1, eos_token_id=2)
        self.assertEqual(len(test_values.heard.sentences), 1)
        self.assertIn("fewer tokens are drafted", test_values.heard.sentences[0])

    def test_a_loop_of_transformers_that_ended_early_is_said(self):
        class Mixin:
            def _sample(self, ids, generation_config):
                test_values.session.warn.guessed_tokens += 1
                return ids

        module = unittest.mock.Mock(GenerationMixin=Mixin)
        decoders.watch(module, test_values.session.warn)
        config = unittest.mock.Mock(max_length=20, num_beams=1)
        Mixin()._sample(torch.ones(1, 20), generation_config=config)
        self.assertEqual(test_values.heard.sentences, [])
        Mixin()._sample(torch.ones(1, 7), generation_config=config)
        self.assertIn("ended after 7 of at most 20 tokens", test_values.heard.sentences[0])


if __name__ == "__main__":
    unittest.main()
