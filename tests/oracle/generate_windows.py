"""What the generator draws of pools, convolutions, and other kernels with windows."""
import numpy as np
from program import Line, Ref
from values import Refused, is_float

class Windows:
    """Of a Writer (generate.py)."""
    def layers(self):
        """Pools and convolutions, of what has enough dims."""
        name = self.any_name(lambda v: v.data.ndim in (2, 3, 4) and is_float(v.dtype) and 0 < v.size < 3000)
        if name is None: return None
        v = self.values[name]
        n = self.pick(1, 2) if v.data.ndim == 3 else v.data.ndim - 2 or 1
        if self.chance(0.5):
            kernel = [self.number(1, 3) for _ in range(n)]
            named = {'stride': self.number(1, 3)} if self.chance(0.5) else {}
            if self.chance(0.3) and min(kernel) > 1: named['padding'] = 1
            return Line([], self.pick('max_pool', 'avg_pool') + f'{n}d', [name, kernel], named)
        if v.data.ndim != n + 2: return None
        weight = Ref(self.fresh())
        sizes = [self.number(1, 5), v.shape[1]] + [self.pick(1, 2, 4) for _ in range(n)]
        count = int(np.prod(sizes))
        last = Ref(self.fresh())
        self.add(Line([last], 'arange', [-3, count - 3]))
        self.add(Line([Ref(self.fresh())], 'remainder', [last, self.pick(3, 5)]))
        self.add(Line([Ref(self.fresh())], 'to', [Ref(self.program.body[-1].targets[0]), v.dtype]))
        self.add(Line([weight], 'reshape', [Ref(self.program.body[-1].targets[0]), sizes]))
        return Line([], f'conv{n}d', [name, weight], {'stride': self.pick(1, 1, 2), 'padding': self.pick(0, 0, 1)})

    def windows(self):
        """A kernel with windows that is turned, between neighbours that fuse with it."""
        name = self.any_name(lambda v: v.data.ndim in (1, 2, 3, 4) and 0 < v.size < 3000)
        if name is None: return None
        start = name
        def further(op, *arguments, **named):
            nonlocal name
            target = Ref(self.fresh())
            try: self.add(Line([target], op, [name, *arguments], named))
            except Refused: return
            name = target
        def neighbour():
            if self.chance(0.5): further(self.pick('add', 'mul', 'maximum', 'minimum'), self.a_number(*self.NUMBERS))
            elif self.chance(0.5): further(self.pick('relu', 'neg', 'square', 'abs', 'clone'))
            else: further('to', self.dtype())
        def turn():
            rank = self.values[name].data.ndim
            if rank == 0: return
            d = self.number(-rank, rank - 1)
            kind = self.pick('flip', 'flip', 'transpose', 'permute', 'slice', 'roll')
            if kind == 'flip': further(kind, self.random.sample(range(rank), self.number(1, rank)))
            elif kind == 'transpose': further(kind, d, self.number(-rank, rank - 1))
            elif kind == 'permute': further(kind, self.random.sample(range(rank), rank))
            elif kind == 'slice': further(kind, d, self.pick(0, 0, 1), 2 ** 63 - 1, self.pick(1, 2, 2, 3))
            else: further(kind, self.number(-3, 3), d)
        def window():
            rank = self.values[name].data.ndim
            if rank == 0: return
            kind = self.pick('pool', 'pool', 'window', 'pad', 'unfold', 'edges')
            if kind == 'pad':
                further('pad', [self.number(-1, 2) for _ in range(2 * self.number(1, min(rank, 4)))], self.a_number(0.0, 1.0, -2.0))
            elif kind == 'edges':
                further(self.pick('reflection_pad', 'replication_pad', 'circular_pad'),
                        [self.number(0, 2) for _ in range(2 * self.number(1, min(3, rank)))])
            elif kind == 'window':
                further('window', self.number(-rank, rank - 1), self.number(1, 3), self.pick(1, 1, 2, 3), self.pick(1, 1, 2))
                if self.chance(0.6): further(self.pick('sum', 'amax', 'amin', 'argmax'), [-1])
            else:
                while self.values[name].data.ndim < 3: further('unsqueeze', 0)
                if kind == 'unfold' and self.values[name].data.ndim == 3: further('unsqueeze', 0)
                n = self.pick(1, 2) if self.values[name].data.ndim == 3 else 2
                kernel, step, pad_ = [self.number(1, 3) for _ in range(n)], self.number(1, 3), self.number(0, 1)
                if kind == 'unfold': further('unfold', kernel, 1, pad_, step)
                else: further(self.pick('max_pool', 'avg_pool') + f'{n}d', kernel, step, pad_ if min(kernel) > 1 else 0)
        for _ in range(self.number(1, 2)):
            if self.chance(0.5): neighbour()
            if self.chance(0.3): turn()
            window()
            turn()
            if self.chance(0.6): neighbour()
        v = self.values[name]
        other = self.any_name(lambda w: w.shape == v.shape) # what stands beside it unturned
        if name != start and other: return Line([], self.pick('add', 'mul', 'maximum', 'sub'), [name, other])
