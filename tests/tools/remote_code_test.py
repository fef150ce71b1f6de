"""The bundled checkpoint carries the reference's own code: a copy that differs would be another model."""

import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class RemoteCode(unittest.TestCase):
    def test_copies_equal_the_reference(self):
        for name in ("configuration_asynct.py", "modeling_asynct.py"):
            reference = (ROOT / "python" / "asynct" / "hf" / name).read_bytes()
            self.assertEqual((ROOT / "models" / "asynct-tiny" / name).read_bytes(), reference, name)


if __name__ == "__main__":
    unittest.main()
