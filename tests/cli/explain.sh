#!/bin/sh
# explain shows every stage; ops lists the table; info names what the machine has.
#   explain.sh CARBIDE
carbide=$1
failed=0

has() { # has WHAT TEXT PATTERN...
    what=$1 text=$2
    shift 2
    for pattern in "$@"; do
        echo "$text" | grep -q -- "$pattern" || { echo "$what: nothing matches '$pattern' in:"; echo "$text"; failed=1; }
    done
}

text=$("$carbide" explain gelu --batch 4096 --full) || { echo "explain gelu: exit status $?"; failed=1; }
has "explain gelu" "$text" "^compiled function gelu: 1 call, 1 graph, 0 breaks" "captured:" "cases.c:" "graph:" \
    "tanh" "steps: 1, eager would launch 8" "memory traffic: .* eager" "engine:"
text=$("$carbide" explain mlp --batch 4 --full) || { echo "explain mlp: exit status $?"; failed=1; }
has "explain mlp" "$text" "matmul f32" "not fused:" "a library step reads what is complete" "(is_a_loop)"
has "explain mlp" "$text" "3 kernels, 2 different" # relu after two layers is one function
text=$("$carbide" explain mlp --batch 4 --full --profile --threads 1) || failed=1
has "explain --profile" "$text" "[0-9] ms ([0-9.]*%), [0-9.]* GB/s, [0-9]* GFLOP/s" "shortest times, in all: [0-9.]* ms"
text=$("$carbide" explain gelu --batch 4096 --options fuse=0 --full) || failed=1
has "explain fuse=0" "$text" "fusion is switched off"
text=$("$carbide" explain softmax --batch 8 --options backend=vm) || failed=1
has "explain backend=vm" "$text" "engine: vector VM"


said=$(CARBIDE_STANCE=force_eager "$carbide" explain gelu --batch 4 2>&1)
has "explain where nothing compiles" "$said" "^gelu$" "  fallback: it was to run eagerly"
text=$("$carbide" explain mlp --batch 4 --profile) || failed=1
has "explain on a screen" "$text" "^mlp$" "^graph 0: 7 inputs f32.4, 784., " \
    "3 steps, eager would launch 5" "a call takes [0-9.]* ms at its best, eager [0-9.]* ms ([0-9.]*x\(: slower\)\?)$" "^    graph [0-9.]* ms: [0-9.]* GB/s, [0-9]* GFLOP/s, [0-9]*%\( or more\)\? of the roofline$" "%  *1628.4 KB matmul f32: 1 x" "not fused, 2 x: "
for words in "resnet50" "resnet50 --profile"; do # a screen of 24 lines, of which the prompt has one
    # shellcheck disable=SC2086
    text=$("$carbide" explain $words) || failed=1
    lines=$(echo "$text" | wc -l)
    { [ "$lines" -ge 20 ] && [ "$lines" -le 23 ]; } || { echo "explain $words: $lines lines"; failed=1; }
    echo "$text" | grep -n '.\{80\}' && { echo "explain $words: lines of 80 columns and more"; failed=1; }
    has "explain $words" "$text" "^  and [0-9]* more steps of [0-9.]* MB" "^  not fused, [0-9]* x: "
done
text=$(CARBIDE_EXPLAIN=1 "$carbide" bench gelu --batch 64 --seconds 0.01 2>&1 >/dev/null) || failed=1
has "CARBIDE_EXPLAIN" "$text" "^gelu$" "1 graph, 0 breaks"
text=$(CARBIDE_EXPLAIN=FULL "$carbide" bench gelu --batch 64 --seconds 0.01 2>&1 >/dev/null) || failed=1
has "CARBIDE_EXPLAIN=FULL" "$text" "explain is 'FULL', which is not 1, full, or a file" "^gelu$"

text=$("$carbide" ops) || failed=1
has "ops" "$text" "^Pointwise" "^exp(x) " "^softmax(x, dim) " "^layer_norm(x, normalized, weight?, bias?, eps=1e-05)"
text=$("$carbide" ops bmm) || failed=1
has "ops bmm" "$text" "^bmm of PyTorch is cb_matmul here" "^cb_matmul(a, b)"
text=$("$carbide" ops GRU) || failed=1
has "ops GRU" "$text" "^GRU of PyTorch is no op here: a loop"
text=$("$carbide" ops --markdown) || failed=1
has "ops --markdown" "$text" "^# Ops" "^| .cb_exp(x). |" "^## Composites" "a . b"
text=$("$carbide" info) || failed=1
has "info" "$text" "^processor" "^cores" "^level" "^cache" "^provider *oneDNN" "recompile_limit"
has "info" "$(echo "$text" | tr -s ' \n' ' ')" " skip .* (attention claim .* amx)" \
    " level .* (auto | base | v3 | v4 | bf16 | amx)" " backend .* (c | vm | eager)" " device .* (auto | cpu | guarded)"
text=$(CARBIDE_PLUGIN_DIR=/nowhere "$carbide" info) || failed=1
has "info without plugins" "$text" "^provider *oneDNN: none, no libcarbide_onednn.so"
exit $failed
