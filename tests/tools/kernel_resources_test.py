"""tools/kernel_resources.py: what it reads, and that the build's fast kernels keep their sums in registers."""

import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
LAUNCHER = ROOT / "tools" / "compile_cuda.sh"
spec = importlib.util.spec_from_file_location("kernel_resources", ROOT / "tools" / "kernel_resources.py")
resources = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = resources  # where dataclasses look for it
spec.loader.exec_module(resources)

# Bytes stored and loaded that a kernel may spill, with nvcc 13.0: what it does today. Decode and prefill of the head
# sizes and the pool in use.
ALLOWED = {
    r"decode_kernel<DecodeTraits<\w+, (64|128), 3, \d>>": 0,
    r"prefill_kernel<PrefillTraits<\w+, 64, 3, (true|false)>>": 8,
    r"prefill_kernel<PrefillTraits<\w+, 128, 3, true>>": 0,
    r"prefill_kernel<PrefillTraits<\w+, 128, 3, false>>": 96,
    r"mixed_kernel<.*PrefillTraits<\w+, 64, 3, true>>": 0,
    r"mixed_kernel<.*PrefillTraits<\w+, 128, 3, true>>": 92,
    r"plain_few_kernel<.*>": 0,
    r"plain_few_kernel<.*> for sm_80": 40,
    r"plain_many_kernel<PlainTraits<\w+, (64|128)>>( for sm_80)?": 0,
    r"plain_many_kernel<PlainTraits<\w+, 256>>( for sm_80)?": 544,
    r"stream_kernel<.*>": 0,
    r"slice_kernel<.*>": 0,
    r"tile_kernel<TileTraits<128, 192, true>, AddResidual>": 616,  # when it stores, not when it multiplies
    r"tile_kernel<(?!TileTraits<128, 192, true>, AddResidual).*>": 0,
}

TEXT = """\
ptxas info    : (C7517) warpgroup.wait is injected in around line 75 by compiler in function '_Z1gv'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in function '_Z1fIiEvT_'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1fIiEvT_' for 'sm_90a'
ptxas info    : Function properties for _Z1fIiEvT_
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers, 16 bytes cumulative stack size, 1032 bytes smem
ptxas info    : Compile time = 12.000 ms
ptxas info    : Function properties for called
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function '_Z1gv' for 'sm_90a'
ptxas info    : Function properties for _Z1gv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compiling entry function '_Z1gv' for 'sm_80'
ptxas info    : Function properties for _Z1gv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
"""


class ReadTest(unittest.TestCase):
    def test_kernels_and_losses(self):
        kernels, losses = resources.parse(TEXT)
        self.assertEqual(
            kernels,
            [
                resources.Kernel("_Z1fIiEvT_", "sm_90a", 168, 32, 1032),
                resources.Kernel("_Z1gv", "sm_90a", 10, 0, 0),
                resources.Kernel("_Z1gv", "sm_80", 12, 0, 0),
            ],
        )
        self.assertEqual([line[:7] for line in losses], ["(C7517)", "(C7510)"])

    def test_a_build(self):
        with tempfile.TemporaryDirectory() as folder:
            build = pathlib.Path(folder)
            (build / "a.cu.o").touch()
            (build / "a.cu.o.ptxas").write_text(TEXT)
            (build / "b.cu.o").touch()
            (build / "removed.cu.o.ptxas").write_text(TEXT)
            kernels, losses, silent = resources.read(build)
        self.assertEqual(list(kernels), ["f<int>", "g", "g for sm_80"])
        self.assertIn("'f<int>'", losses[1].replace("void ", "").replace("(int)", ""))
        self.assertEqual(silent, [build / "b.cu.o"])


class LauncherTest(unittest.TestCase):
    """The compiler's words: facts go beside the object, all else to the terminal; its status stays."""

    def launch(self, folder, script, *words):
        command = [str(LAUNCHER), "sh", "-c", script, "compiler", *words]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True)

    def test_words_are_parted(self):
        script = 'cat said >&2; echo "a.cu(3): warning: words" >&2; echo out; exit 3'
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "said").write_text(TEXT)
            done = self.launch(folder, script, "-c", "a.cu", "-o", "a b.o")
            kept = pathlib.Path(folder, "a b.o.ptxas").read_text()
        self.assertEqual(done.returncode, 3)
        self.assertEqual(done.stdout, "out\n")
        self.assertEqual(done.stderr, "a.cu(3): warning: words\n" + "".join(TEXT.splitlines(True)[:2]))
        self.assertEqual(kept, TEXT)

    def test_without_an_object(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.launch(folder, "echo ptxas info >&2", "--version")
        self.assertEqual((done.returncode, done.stderr), (0, "ptxas info\n"))


@unittest.skipUnless(resources.objects(BUILD), "no CUDA objects in build/: registers and spills are not checked")
class BuildTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kernels, cls.losses, cls.silent = resources.read(BUILD)

    def test_every_object_has_its_record(self):
        self.assertEqual(self.silent, [])

    def test_spills_stay_within_what_is_allowed(self):
        for pattern, allowed in ALLOWED.items():
            with self.subTest(pattern):
                found = [kernel for name, kernel in self.kernels.items() if re.fullmatch(pattern, name)]
                self.assertTrue(found, "no kernel of this name")
                self.assertEqual([kernel for kernel in found if kernel.spilled > allowed], [])

    def test_products_of_warpgroups_run_asynchronously(self):
        self.assertEqual(self.losses, [])


if __name__ == "__main__":
    unittest.main()
