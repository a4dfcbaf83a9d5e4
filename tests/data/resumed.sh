#!/bin/sh
# A run that stops twice, and once is killed behind its checkpoint, ends with the same checkpoint and
# the same losses as one that never stopped. A damaged or missing checkpoint is refused by name.
#   resumed.sh PROGRAM     train_gpt, gpt2 or train_resnet, of examples/
train=$1
case $train in
*train_gpt) sizes="--layers 1 --width 16 --heads 2 --length 8 --batch 2 --sample 0" value=validation ;;
*gpt2) sizes="--layers 1 --width 16 --heads 2 --positions 16 --rows 256 --length 8 --batch 2 --sample 0 --bf16"
       value=validation ;;
*) sizes="--width 2 --batch 8 --size 16 --threads 1" value=right ;;
esac
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0

run() { # run NAME FLAGS...
    name=$1
    shift
    # shellcheck disable=SC2086
    "$train" $sizes --steps 9 --warmup 3 --save-every 2 --validate-every 3 --checkpoint "$name" \
        --log "$name.jsonl" "$@" >out 2>err
}
losses() { sed -n 's/.*\("step": [0-9]*, "\(loss\|'$value'\)": [^,}]*\).*/\1/p' "$1"; }
wrong() { echo "$1"; cat out err; failed=1; }

run whole --curve curve.svg || wrong "the whole run fails"
grep -q " MB in tensors, " out || wrong "the run does not say what memory it took"
run parts --stop-after 3 || wrong "the first part fails"
cmp -s whole parts && wrong "three steps give what nine do"
echo '{"step": 4, "loss": 1, "lr": 1, "tok' >>parts.jsonl # of a run that was killed
run parts --resume --stop-after 2 || wrong "the second part fails"
run parts --resume || wrong "the third part fails"
cmp whole parts || failed=1
losses whole.jsonl >a
losses parts.jsonl >b
[ "$(wc -l <a)" = 12 ] || wrong "the log has not nine losses and three validations"
cmp a b || failed=1
grep -q "<polyline" curve.svg || wrong "there is no curve"
run longer --steps 6 --stop-after 4 || wrong "a shorter run fails"
run longer --resume || wrong "a run that was made longer fails"
run finished --steps 6 || wrong "a shorter run fails"
run finished --resume || wrong "a run that was finished and made longer fails"
rate() { sed -n 's/.*"step": 9, .*"lr": \([^,}]*\).*/\1/p' "$1"; }
for name in longer finished; do
    [ "$(rate $name.jsonl)" = "$(rate whole.jsonl)" ] || wrong "the $name run has another rate at its end"
done

head -c 300 whole >cut
run cut --resume && wrong "takes a checkpoint that is cut off"
grep -q "cut" err || wrong "does not name the checkpoint that is cut off"
run missing --resume && wrong "goes on from nothing"
run none/whole --log /dev/null && wrong "saves into a folder that is not there"
run whole --log /dev/full && wrong "logs to a full disk"
grep -q "No space left" err || wrong "does not say that the disk is full"
cmp whole parts || wrong "a run that failed wrote its checkpoint"
exit $failed
