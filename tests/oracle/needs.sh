#!/bin/sh
# Where Python lacks NumPy or torch (here: it sees no installed package), each script of this folder says so in one
# line and ends with 77.
cd "$(dirname "$0")" || exit 1
unset PYTHONPATH
command -v python3 >/dev/null || { echo "skipped: no python3 here"; exit 77; }
for script in binding.py every_op.py gradients.py grad_programs.py multihead.py random_calls.py 'programs.py run 1 5 1' \
              'programs.py check found.txt' 'programs.py show 1 1'; do
    # shellcheck disable=SC2086
    said=$(python3 -S -B $script 2>&1)
    status=$?
    case $said in
    "skipped: no "*) ;;
    *) echo "$script says: $said"; exit 1 ;;
    esac
    [ $status = 77 ] && [ "$(echo "$said" | wc -l)" = 1 ] && continue
    echo "$script ends with $status and says: $said"
    exit 1
done
