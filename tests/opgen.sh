#!/bin/sh
# A row of the op table that makes no sense ends the build, with a message that names it.
# Run from the source folder. Each case: a row, and what the message must hold.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/op" "$work/nn" "$work/out"
cp src/op/op_rows.h src/op/dtype_rows.h src/op/dtype.def "$work/op"
echo 'NARROW_ROW(U24, u24)' >>"$work/op/dtype.def"
: >"$work/nn/layers.def"
passed=0
failed=0

# Two files read no rows, and are compiled once.
others=
for file in tools/opgen_schema.c tools/opgen_functions.c; do
    ${CC:-cc} -std=gnu11 -O0 -I"$work" -c "$file" -o "$work/$(basename "$file").o" || exit 1
    others="$others $work/$(basename "$file").o"
done

refuses() { # refuses ROW MESSAGE
    printf '%s\n' "$1" >"$work/op/ops.def"
    ${CC:-cc} -std=gnu11 -O0 -I"$work" tools/opgen.c tools/opgen_layers.c $others -o "$work/opgen" || exit 1
    if message=$("$work/opgen" "$work" "$work/out" 2>&1); then
        echo "opgen took: $1"
    elif ! printf '%s' "$message" | grep -qF -- "$2"; then
        echo "opgen on: $1"
        echo "said: $message"
        echo "and not: $2"
    else
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
}

refuses 'VIEW(v, ".v", "x, dim:numeral", CODE)' "op v: unknown type 'numeral'"
refuses 'VIEW(v, ".v", "x, value:number=one", CODE)' "op v: 'one' is no number"
refuses 'VIEW(v, ".v", "x, dim:int=1, end:int", CODE)' 'op v: end stands behind a default and has none'
refuses 'VIEW(v, ".v", "x, x:int", CODE)' 'op v: two parameters are named x'
refuses 'VIEW(v, ".v", "x, dim:int=one", CODE)' "op v: 'one' is no integer"
refuses 'VIEW(v, ".v", "x, dim:dims=some", CODE)' "op v: the default of dims is 'all', 'none' or an integer, not 'some'"
refuses 'VIEW(v, ".v", "x, y:dtype=f31", CODE)' "op v: 'f31' is no dtype"
refuses 'VIEW(v, ".v", "x, y:reduction=most", CODE)' "op v: 'most' is no reduction"
refuses 'VIEW(v, ".v", "x, y:dtype=u24, z:dtype=f31", CODE)' "op v: 'f31' is no dtype" # one of dtype.def is
refuses 'VIEW(v, ".v", "a:dims, b:dims, c:dims, d:dims, e:dims, f:dims", CODE)' 'op v: attributes take more than'
refuses 'VIEW(v, ".v", "", CODE)' "op v: '' is no name"
refuses 'UNARY(u, ".u", FLOTA, 1, "g", a)' 'op u: unknown dtype rule FLOTA'
refuses 'COMPOSITE(c, ".c", REAL, "x", "x")' 'op c: unknown dtype rule REAL'
refuses 'SCAN(s, ".s", "x, dim:int", SUM, sum, CODE)' 'op s: it scans sum, which is no reduction'
refuses 'SCAN(s, ".s", "x, back:bool, dim:int", SUM, sum, CODE)' "op s: the schema of a SCAN begins with 'x, dim:int'"
refuses 'STRUCTURED(g, ".g", GATHER, "x, index, dim:int", KEEP, CODE)' "op g: the schema of a GATHER begins with 'x, dim:int, index'"
refuses 'REDUCE(r, ".r", SUM, NONE, K(0), CODE, a * a + b)' 'op r: combine is one operator or an M(...), not a * a + b'
refuses 'COMPOSITE(c, ".c", SAME, "x", "x", BF17)' 'op c: autocast is NONE, LOWER or F32, not BF17'
refuses 'VIEW(v, ".v", "x", CODE)
VIEW(v, ".w", "x", CODE)' 'op v: the name is taken twice'

refuses 'VIEW(v, ".v", "x", "")' 'op v: a gradient, CODE or NONE("why") is missing'
refuses 'UNARY(u, ".u", FLOAT, 1, "da = g", a)' 'op u: the gradient "da = g" is that of no input'
refuses 'BINARY(b, ".b", 0, FLOAT, 1, "h = g; dc = h", a + b)' 'op b: the gradient "h = g; dc = h" is that of no input'

# The same for layers, beside one op.
refuses_layer() {
    printf '%s\n' "$1" >"$work/nn/layers.def"
    refuses 'COMPOSITE(op, ".op", SAME, "x, alpha:float=1, size:dims=1", "x")' "$2"
}
refuses_layer 'LAYER(l, "L", po, "", "")' 'layer l: there is no op po'
refuses_layer 'LAYER(l, "L", op, "alpha:int", "")' 'layer l: alpha is no attribute 0 of op op'
refuses_layer 'LAYER(l, "L", op, "alpha:float, size:dims, more:int", "")' 'layer l: more is no attribute 2 of op op'
refuses_layer 'LAYER(l, "L", op, "alpha:float", "beta")' "layer l: 'beta' is shown, and no parameter"
refuses_layer 'BUILT(l, "x")' 'layer l: a layer is made of numbers and texts'
refuses_layer 'BUILT(l, "")
BUILT(l, "p:float")' 'layer l: the name is taken twice'

echo "opgen: $passed passed, $failed failed"
[ $failed = 0 ]
