"""What every op means, in NumPy, on the judge's values: OPS[name](arguments as in the op table), SEVERAL of
functions with several results, and cat, stack, assign, fill_.
Refused: wrong arguments, or a result that no two machines need agree on (floor of a rounded sum)."""
from ops_composite import OPS, SEVERAL, assign, cat, fill_, stack
