#!/bin/bash
# Makes the virtual environment of the differential tests: PyTorch 2.11 on the CPU, transformers, tokenizers and
# lm-eval at exact versions, without the 2.8 GB of NVIDIA wheels that PyTorch would pull in. About 2 minutes.
# usage: tools/setup_diff_env.sh VENV       (PYTHON=python3.12 chooses the interpreter)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
venv=$1
if ! ${PYTHON:-python3} -m venv "$venv" 2>/dev/null; then
  sudo=$([ "$(id -u)" -eq 0 ] || echo sudo)
  $sudo apt-get install -y -qq --no-install-recommends python3-venv binutils
  ${PYTHON:-python3} -m venv "$venv"
fi
# --no-deps: the list is complete, and a resolver would add the NVIDIA wheels.
"$venv/bin/pip" --disable-pip-version-check install -q --no-deps -r "$root/tests/diff/requirements.txt"
"$venv/bin/python" "$root/tools/stub_cuda_libs.py" --all >/dev/null
"$venv/bin/python" -c 'import torch, transformers, lm_eval; assert not torch.cuda.is_available()'
touch "$venv/ready"
