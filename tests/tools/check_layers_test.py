import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_layers  # noqa: E402


class CheckLayers(unittest.TestCase):
    def violations(self, layer, include):
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root) / "src" / "asynct" / layer
            folder.mkdir(parents=True)
            (folder / "x.cc").write_text(f'#include "asynct/{include}/y.h"\n')
            return list(check_layers.violations(pathlib.Path(root)))

    def test_downward_is_fine(self):
        self.assertEqual(self.violations("engine", "base"), [])
        self.assertEqual(self.violations("ops", "ops"), [])

    def test_upward_is_found(self):
        self.assertIn("ops may not include engine", self.violations("ops", "engine")[0])

    def test_unknown_is_found(self):
        self.assertIn("unknown layer", self.violations("ops", "misc")[0])


if __name__ == "__main__":
    unittest.main()
