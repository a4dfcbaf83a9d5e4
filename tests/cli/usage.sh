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
refused 2 "no case 'gleu'"               bench gleu
refused 2 "muladd_relu_sum"              bench gleu
refused 2 "no option --thread"           bench gelu --thread 2
refused 2 "--threads cannot be 'two'"    bench gelu --threads two
refused 2 "--threads cannot be '0'"      bench gelu --threads=0
refused 2 "--batch needs N"              bench gelu --batch
refused 2 "--json takes no value"        bench gelu --json=1
refused 2 "--dtype cannot be 'f31'"      bench gelu --dtype f31
refused 1 "there are bf16 and f16"       bench gelu --autocast f64
refused 2 "f32, f64, bf16, f16"          bench gelu --dtype i32
refused 2 "mode cannot be 'fastest'"     bench gelu --mode fastest
refused 2 "device cannot be 'abacus'"    bench gelu --device abacus
refused 2 "no option 'fuzz'"             bench gelu --options fuzz=1
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
refused 2 "no case 'gleu'"               cache why gleu
refused 2 "'x' is not understood"        ops x
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
exit $failed
