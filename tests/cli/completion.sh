#!/bin/sh
# Lines are completed by bash, zsh and fish themselves, from what `carbide completion` prints.
#     completion.sh CARBIDE
# Where a shell is missing, and nothing is wrong with the others, the test says so and is skipped.
carbide=$1
cases=$(mktemp -d) || exit 1
trap 'rm -rf "$cases"' EXIT
mkdir "$cases/home" "$cases/zsh" "$cases/files"
export HOME="$cases/home" XDG_CONFIG_HOME="$cases/home" XDG_DATA_HOME="$cases/home" TERM=xterm CASES="$cases"
"$carbide" completion bash >"$cases/carbide.bash" && "$carbide" completion zsh >"$cases/zsh/_carbide" &&
    "$carbide" completion fish >"$cases/carbide.fish" || exit 1
touch "$cases/files/kernels.bin"
cd "$cases/files" || exit 1
failed=0 missing=0

# A line, then words that are to be offered for it, and !WORD that are not.
cat >"$cases/table" <<'END'
carbide |bench explain ops cache info completion manual help !relu !kernels.bin
carbide ex|explain !bench
carbide --v|--version
carbide ops rel|relu relu6 !softmax
carbide ops --m|--markdown !--json
carbide explain soft|softmax !relu
carbide explain softmax --h|--html --help
carbide explain softmax --html kern|kernels.bin
carbide bench --b|--batch --batches !--html
carbide cache ex|export !explain
carbide cache export kern|kernels.bin
carbide completion |bash zsh fish !bench
carbide info --|--help !--json
END

# Each shell writes what it offers for the n-th line, one a line, to $CASES/SHELL.n.
bash_offers() {
    bash -c '. "$CASES/carbide.bash"
             while IFS="|" read -r line words; do
                 COMP_WORDS=($line); case $line in *" ") COMP_WORDS+=("");; esac
                 COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _carbide
                 { printf "%s\n" "${COMPREPLY[@]}"; ((${#COMPREPLY[@]})) ||
                     compgen -f -- "${COMP_WORDS[COMP_CWORD]}"; } >"$CASES/bash.$((++n))"
             done <"$CASES/table"'
}
fish_offers() {
    fish --no-config -c 'source $CASES/carbide.fish; set n 0
                         while read -d "|" line words
                             set n (math $n + 1); complete -C $line | cut -f1 >$CASES/fish.$n
                         end <$CASES/table'
}
# The lines are typed into a terminal of zsh's own, with compinit. compadd says what it adds.
zsh_offers() {
    cat >"$cases/home/.zshrc" <<'END'
PROMPT= n=0
fpath=($CASES/zsh $fpath)
autoload -U compinit
compinit -u -D
compadd() { local -a hits; builtin compadd -O hits "$@"; print -rl -- $hits >>$CASES/zsh.offers; builtin compadd "$@" }
finish() { _main_complete; mv $CASES/zsh.offers $CASES/zsh.$((++n)) 2>/dev/null || : >$CASES/zsh.$n; compstate[insert]= }
zle -C finish complete-word finish
bindkey "^F" finish
END
    ZDOTDIR=$cases/home zsh -f -c '
        zmodload zsh/zpty
        zpty -b shell "zsh -i"
        while IFS="|" read -r line words; do
            zpty -w -n shell $'"'\\x15'"'$line$'"'\\x06'"'
            n=$((n + 1))
            for ((i = 0; i < 400; i++)); do
                [[ -e $CASES/zsh.$n ]] && break
                while zpty -r -t shell rest; do; done
                sleep 0.05
            done
        done <$CASES/table
        zpty -d shell'
}

compare() { # compare SHELL
    n=0
    while IFS='|' read -r line words; do
        n=$((n + 1))
        for word in $words; do
            case $word in
            !*) ! grep -qx -e "${word#!}" "$cases/$1.$n" ;;
            *) grep -qx -e "$word" "$cases/$1.$n" ;;
            esac || { echo "$1: '$line' and $word: offered are" $(head -n 20 "$cases/$1.$n"); failed=1; }
        done
    done <"$cases/table"
}

for shell in bash zsh fish; do
    if command -v $shell >/dev/null 2>&1; then
        ${shell}_offers
        compare $shell
    else
        echo "$shell is missing: its completions are not tried"
        missing=1
    fi
done
[ $failed = 0 ] && [ $missing = 1 ] && exit 77
exit $failed
