#!/bin/sh
# Compiler launcher for CUDA: tools/compile_cuda.sh [ccache] nvcc ... -o OBJECT. What ptxas -v says of the kernels goes
# to OBJECT.ptxas, for tools/kernel_resources.py; the rest, lost speed included, to the terminal as ever.
object=
previous=
for word; do
  [ "$previous" = -o ] && object=$word
  previous=$word
done
if [ -z "$object" ]; then
  exec "$@"
fi
kept="$object.ptxas"
"$@" 2>"$kept.all"
status=$?
facts='^ptxas info|^ *[0-9]+ bytes stack frame'
grep -E "$facts" "$kept.all" >"$kept"
grep -vE "$facts" "$kept.all" >&2
grep '(C75' "$kept" >&2
rm -f "$kept.all"
exit $status
