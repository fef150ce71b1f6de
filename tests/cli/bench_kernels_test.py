"""asynct bench kernels as far as it goes without a GPU."""

import os
import unittest

from command import MODEL, CommandTest, require_binary

setUpModule = require_binary
# A machine with a GPU must not measure for minutes here.
NO_GPU = dict(os.environ, CUDA_VISIBLE_DEVICES="")


class BenchKernels(CommandTest):
    def test_help_fits_a_screen(self):
        text = self.succeeds("bench", "kernels", "--help").stdout
        self.assertLessEqual(len(text.splitlines()), 40)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_without_a_gpu_or_kernels_it_says_so(self):
        result = self.fails("bench", "kernels", "--quick", env=NO_GPU)
        self.assertRegex(result.stderr, "no CUDA device .*compute capability 9.0|built without CUDA kernels.*nvcc")

    def test_bad_shapes_are_named_before_anything_runs(self):
        for option, value in (("--decode", "1,2,3"), ("--prefill", "1,2,4,3,128"), ("--mixed", "1,2,3,4,5,6,7,eight"),
                              ("--layer", "1,2,3,4,5,6")):
            with self.subTest(option):
                self.fails("bench", "kernels", option, value, naming=(option, value), env=NO_GPU)

    def test_bad_density_and_file(self):
        self.fails("bench", "kernels", "--density", "1.5", naming=("--density", "1.5"), env=NO_GPU)
        missing = self.directory / "missing" / "file.json"
        self.fails("bench", "kernels", "--json", missing, naming=(str(missing),), env=NO_GPU)

    def test_a_model_does_not_go_with_it(self):
        self.fails("bench", MODEL, "kernels", naming=("kernels", "MODEL"), env=NO_GPU)


if __name__ == "__main__":
    unittest.main()
