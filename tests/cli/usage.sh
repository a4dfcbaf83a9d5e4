#!/bin/sh
# What the command does not understand is refused by name, with exit status 2, before anything runs.
#   usage.sh CARBIDE
carbide=$1
failed=0

# refused STATUS TEXT ARGUMENTS...: the exit status, and a text that the message holds
refused() {
    status=$1 text=$2
    shift 2
    said=$("$carbide" "$@" 2>&1 </dev/null)
    got=$?
    case $said in
    *"$text"*) [ $got = "$status" ] && return ;;
    esac
    echo "carbide $*: exit status $got (expected $status), said: $said"
    failed=1
}

refused 2 "bench"                        # no command: the help
refused 2 "no command 'bnch'"            bnch
refused 2 "did you mean 'bench'?"        bnch
refused 2 "did you mean 'help'?"         hlep
refused 2 "no case 'gleu'"               bench gleu
refused 2 "did you mean 'gelu'?"         bench gleu
refused 2 "did you mean 'threads'?"      bench gelu --thread 2
refused 2 "muladd_relu_sum"              bench gleu
refused 2 "no option --thread"           bench gelu --thread 2
refused 2 "--threads cannot be 'two'"    bench gelu --threads two
refused 2 "--threads cannot be '0'"      bench gelu --threads=0
refused 2 "--batch needs N"              bench gelu --batch
refused 2 "--json takes no value"        bench gelu --json=1
refused 2 "--dtype cannot be 'f31'"      bench gelu --dtype f31
refused 2 "it can be bf16, f16"          bench gelu --autocast f64
refused 2 "f32, f64, bf16, f16"          bench gelu --dtype i32
refused 2 "mode cannot be 'fastest'"     bench gelu --mode fastest
refused 2 "device cannot be 'abacus'"    bench gelu --device abacus
refused 2 "no option 'fuzz'"             bench gelu --options fuzz=1
refused 2 "mean 'fuse'?"                 bench gelu --options fues=1
refused 2 "photo has no batch"           bench photo --batch 2
refused 2 "device cannot be 'abacus'"    bench alexnet --device abacus
refused 2 "--batches cannot be '0'"      bench alexnet --batches 0
refused 2 "--only cannot be 'half'"      bench alexnet --only half
refused 2 "'-x' is not understood"       bench -x
refused 2 "name one case"                explain
refused 2 "name one case"                explain gelu softmax
refused 2 "no case 'gleu'"               explain gleu
refused 2 "mode cannot be 'fastest'"     explain gelu --mode fastest
refused 2 "usage: carbide cache"         cache
refused 2 "usage: carbide cache"         cache lst
refused 2 "did you mean 'list'?"         cache lits
refused 2 "did you mean 'why'?"          cache wyh gelu
refused 2 "why takes one CASE"           cache why
refused 2 "mean '--version'?"            -V
refused 2 "did you mean 'conv1d'?"       ops conv
refused 2 "no case 'gleu'"               cache why gleu
refused 2 "did you mean 'relu'?"         ops RELU
refused 0 "--options"                    help explain
refused 0 "--options"                    --help explain
refused 2 "did you mean 'bench'?"        help bnch
refused 2 "did you mean 'relu'?"         ops rleu
refused 2 "'softmax' is not understood"  ops relu softmax
refused 2 "there is no op 'xyzzyxyzzy'"  ops xyzzyxyzzy
refused 2 "'x' is not understood"        manual x
refused 2 "usage: carbide completion"    completion
refused 2 "usage: carbide completion"    completion tcsh
refused 0 "in PyTorch"                   ops relu
refused 0 "in PyTorch"                   ops cb_relu
refused 0 "the k largest or smallest"    ops topk
refused 2 "did you mean 'topk'?"         ops topl
refused 0 "1e-05 when left out"          ops layer_norm
refused 0 "cb_max(x);"                   ops max
refused 0 "cb_amax(x, dim) along dims"   ops max
refused 0 "cb_matmul here"               ops bmm
refused 0 "cb_unsqueeze(a, 1), b)"       ops outer
refused 0 "no recurrent layers"          ops lstm
refused 0 "cb_backward, of carbide_grad.h" ops backward
refused 0 "cb_call(function, ...)"       ops cb_call
refused 0 "a layer of carbide_nn.h"      ops batch_norm2d
refused 0 "CB_REDUCE_SUM; mean when"     ops mse_loss
refused 2 "'x' is not understood"        info x
refused 0 "bench"                        help
refused 0 "--dtype"                      bench --help
refused 0 "--options"                    explain --help
refused 0 "--batches"                    bench alexnet --batch 32 --help
refused 0 "--profile"                    explain gelu -h
refused 0 "list|why|clear"               cache --help
refused 2 "no option --speed"            info --speed
refused 0 "layernorm_gelu"               bench list
refused 0 "0.1"                          --version

for command in bench explain ops cache info completion manual; do refused 0 "examples" $command --help; done

# So is what the environment has.
said=$(CARBIDE_TRACE=on CARBIDE_THREDS=1 CARBIDE_threads=2 CARBIDE_CHECK=0 "$carbide" info 2>&1 >/dev/null | LC_ALL=C sort)
[ "$said" = "carbide: CARBIDE_THREDS is no option; did you mean CARBIDE_THREADS?
carbide: CARBIDE_TRACE=on is ignored: expected a file
carbide: CARBIDE_threads is no option; did you mean CARBIDE_THREADS?" ] || { echo "unknown variables: $said"; failed=1; }
said=$(CARBIDE_NOTICES=0 CARBIDE_THREDS=1 "$carbide" info 2>&1 >/dev/null)
[ -z "$said" ] || { echo "unknown variables without notices: $said"; failed=1; }

# What cannot be written is no success, and files that are opened do not take stdout's place.
for words in "ops" "bench list" "manual" "completion bash"; do
    # shellcheck disable=SC2086
    said=$("$carbide" $words 2>&1 >&-) && { echo "carbide $words: succeeds without stdout"; failed=1; }
    echo "$said" | grep -q "not all of the output could be written" || { echo "carbide $words without stdout: $said"; failed=1; }
    [ -w /dev/full ] || continue
    # shellcheck disable=SC2086
    "$carbide" $words 2>/dev/null >/dev/full && { echo "carbide $words: succeeds on a full disk"; failed=1; }
done

# Tables fit a screen; a pipe gets no colours.
for words in "info" "help" "ops" "ops kl_div" "ops grad" "bench list" "bench --help" "explain --help" "cache --help" "bench gelu mlp --batch 64 --seconds 0.01"; do
    # shellcheck disable=SC2086
    said=$("$carbide" $words 2>&1)
    echo "$said" | grep -v '^provider\|^compiler\|^cache \|^library\|^processor' | grep '.\{81\}' &&
        { echo "carbide $words: more than 80 columns"; failed=1; }
    echo "$said" | grep -q "$(printf '\033')" && { echo "carbide $words: colours without a terminal"; failed=1; }
done
said=$(CARBIDE_CACHE_DIR=/tmp/a/path/that/is/longer/than/its/column/in/the/list "$carbide" info)
echo "$said" | grep -q '^  cache_dir  .*list$' || { echo "info: what is set stands before its help: $said"; failed=1; }
echo "$said" | grep -q 'its/column/in/the/list: 0 entries\|^cache .*list:$' || { echo "info: no cache"; failed=1; }
if command -v script >/dev/null 2>&1; then
    TERM=xterm script -qec "$carbide bench list; $carbide info" /dev/null | grep -q "$(printf '\033')" ||
        { echo "no colours on a terminal"; failed=1; }
    TERM=xterm NO_COLOR=1 script -qec "$carbide info" /dev/null | grep -q "$(printf '\033')" &&
        { echo "colours in spite of NO_COLOR"; failed=1; }
else
    echo "script is missing: colours are not checked"
fi

# The shells read their completions, and bash completes.
"$carbide" manual | grep -q '^\.SS "carbide explain CASE"' || { echo "manual: no section of explain"; failed=1; }
if command -v bash >/dev/null 2>&1; then
    said=$("$carbide" completion bash | bash -c '. /dev/stdin; COMP_WORDS=(carbide ops rel); COMP_CWORD=2; _carbide; echo ${COMPREPLY[@]}')
    case " $said " in *" relu "*) ;; *) echo "bash completes 'ops rel' to '$said'"; failed=1 ;; esac
fi
for shell in bash zsh fish; do
    "$carbide" completion $shell | grep -q resnet50 || { echo "completion $shell: no cases"; failed=1; }
    command -v $shell >/dev/null 2>&1 || { echo "$shell is missing: its completions are not read"; continue; }
    "$carbide" completion $shell | $shell -n || { echo "completion $shell: not understood"; failed=1; }
done
exit $failed
