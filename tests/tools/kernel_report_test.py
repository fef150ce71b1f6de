"""bench/kernels/report.py: from measured files to tables; pack_fa3.py: what it finds in a library."""

import importlib.util
import json
import pathlib
import struct
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench" / "kernels"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.path.insert(0, str(FOLDER))  # report.py's own imports
report = load("report")
pack = load("pack_fa3")


def timing(seconds, **more):
    return {"seconds": seconds, "p10": 0.9 * seconds, "p90": 1.2 * seconds, "count": 21} | more


def decode_group():
    floor = {"bytes": 67e6, "flops": 134e6}

    def result(seconds, floor=floor):
        return {"bursts": timing(seconds), "sustained": timing(2 * seconds), "floor": floor, "relative_error": 2e-3}

    return {
        "kind": "decode", "shape": [32, 1024, 8, 4, 128], "floor": floor, "sets": 8,
        "results": {
            "AsyncI": result(20e-6), "AsyncI Triton, halo": result(19e-6), "FA-3 paged, 1 splits": result(26e-6),
            "FA-3 paged, 4 splits": result(25e-6), "cuDNN paged": result(22e-6), "read K and V 0": result(18e-6),
            "read K and V 2": result(16e-6), "AsyncI, density 0.5": result(15e-6, {"bytes": 50e6, "flops": 100e6}),
            "broken": {"error": "no such kernel"},
        },
    }  # fmt: skip


class Report(unittest.TestCase):
    def test_the_fastest_setting_stands_for_all(self):
        entries = report.fastest(report.entries_of({"groups": [decode_group()]}))
        seconds = {e.name: e.seconds() for e in entries}
        self.assertEqual(seconds["FA-3 paged"], 25e-6)
        self.assertEqual(seconds["read K and V"], 16e-6)
        self.assertNotIn("broken", seconds)
        self.assertEqual(len(seconds), 6)

    def test_ratios_leave_out_baselines_and_lighter_work(self):
        entries = report.fastest(report.entries_of({"groups": [decode_group()]}))
        text = report.section("decode", entries)
        self.assertIn("| **best peer's time / ours** | 1.10 |", text)  # cuDNN's 22 by 20; density 0.5 does less
        self.assertIn("| **best baseline's time / ours** | 0.95 |", text)
        self.assertIn("| AsyncI | 20.0 [18.0, 24.0] 0.80 |", text)
        self.assertIn("| AsyncI | 40.0 [36.0, 48.0] 0.80 |", text)  # sustained, against the sustained reader

    def test_rates_of_prefill_come_with_their_clock(self):
        floor = {"bytes": 1e6, "flops": 1e12}
        entry = report.Entry("prefill", "1", "FA-3", floor, {"bursts": timing(2e-3, sm_mhz=1755)})
        self.assertEqual(report.cell(entry, "bursts", "TFLOP/s", None), "500 [417, 556] @1755")
        self.assertEqual(report.cell(entry, "sustained", "TFLOP/s", None), "-")

    def test_reads_the_programs_file_too(self):
        program = {
            "device": {"name": "card"},
            "ceilings": {"read_bytes_per_second": 4e12, "product_flops_per_second": 0},
            "results": [
                {"kernel": "decode", "shape": "1,2,3", "variant": "density 1", "floor_bytes": 5.0, "floor_flops": 6.0,
                 "bursts": timing(1e-6)},
                {"kernel": "decode", "shape": "1,2,3", "variant": "density 0", "floor_bytes": 5.0, "floor_flops": 6.0,
                 "error": "none"},
            ],
        }  # fmt: skip
        (entry,) = report.entries_of(json.loads(json.dumps(program)))
        self.assertEqual((entry.shape, entry.name), ("1, 2, 3", "AsyncI, density 1 (program)"))
        self.assertEqual(report.ceilings_of([program]), {"read_bytes_per_second": 4e12})
        self.assertIn("read 4 TB/s", report.heading([program], report.ceilings_of([program])))


class Pack(unittest.TestCase):
    def test_finds_images_behind_padding(self):
        def image(architecture, content):
            header = struct.pack("<HHIQ", 2, 0, 64, len(content)) + bytes(12) + struct.pack("<I", architecture)
            return header + bytes(64 - len(header)) + content

        inner = image(90, b"\x7fELF" + b"a" * 12) + image(80, b"\x7fELF" + b"b" * 4)
        fat = struct.pack("<IHHQ", pack.FAT_MAGIC, 1, 16, len(inner)) + inner
        code = fat + bytes(16) + fat
        names = b"\0.shstrtab\0.nv_fatbin\0"
        sections = [(0, 0, 0), (1, 64 + len(code), len(names)), (11, 64, len(code))]
        table = b"".join(
            struct.pack("<IIQQQQ", name, 1, 0, 0, offset, size) + bytes(24) for name, offset, size in sections
        )
        elf = bytearray(64)
        struct.pack_into("<Q", elf, 40, 64 + len(code) + len(names))
        struct.pack_into("<HHH", elf, 58, 64, len(sections), 1)
        data = bytes(elf) + code + names + table
        found = pack.images(data)
        self.assertEqual([i.architecture for i in found], [90, 80, 90, 80])
        self.assertEqual([i.size for i in found], [16, 8, 16, 8])
        self.assertTrue(all(data[i.begin : i.begin + 4] == b"\x7fELF" for i in found))

    def test_which_kernels_are_wanted(self):
        def forward(dim, element="cutlass::bfloat16_t", softcap="false", paged="false", split="false"):
            switches = f"true, false, {softcap}, false, {paged}, false, false, true, true, false, {split}, false"
            shape = f"cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, cute::tuple<cute::C<128>, cute::C<176>, cute::C<{dim}> >"
            return (
                f"flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, {shape}, {dim}, {element}, float, "
                f"cutlass::arch::Sm90, {switches}>"
            )

        self.assertTrue(pack.is_wanted([forward(128)]))
        self.assertTrue(pack.is_wanted([forward(128, paged="true", split="true")]))
        self.assertTrue(pack.is_wanted([forward(64)]))
        self.assertTrue(pack.is_wanted(["prepare_varlen_num_blocks_kernel"]))
        self.assertFalse(pack.is_wanted([forward(64, paged="true")]))
        self.assertFalse(pack.is_wanted([forward(128, softcap="true")]))
        self.assertFalse(pack.is_wanted([forward(128, element="cutlass::half_t")]))
        self.assertFalse(pack.is_wanted([forward(192)]))
        self.assertFalse(pack.is_wanted(["FlashAttnBwdSm90"]))


if __name__ == "__main__":
    unittest.main()
