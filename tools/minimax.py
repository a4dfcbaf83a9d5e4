"""Minimax polynomials of src/op/math_*.h: weighted discrete Remez exchange in high precision.

fit() gives the coefficients c[0..n-1] of p(u) = sum c[i] u^i that minimize max |w(u) (f(u) - p(u))|
on [a, b], each rounded in turn to the target format and the rest fitted again. Needs mpmath; takes
a minute: python3 tools/minimax.py
"""
import struct
from mpmath import (mp, mpf, matrix, lu_solve, exp, expm1, log1p, sin, cos, atan, asin, tanh, sinh, erf,
                    erfc, sqrt, pi, log)

mp.dps = 60


def as_f32(x):
    return mpf(struct.unpack('f', struct.pack('f', float(x)))[0])


def as_f64(x):
    return mpf(float(x))


def remez(grid, f, w, n):
    """One discrete minimax fit; f and w are lists over the grid."""
    m = len(grid)
    ref = [int((1 - cos(pi * i / n)) / 2 * (m - 1)) for i in range(n + 1)]
    for _ in range(60):
        a = matrix(n + 1, n + 1)
        b = matrix(n + 1, 1)
        for i, k in enumerate(ref):
            power = mpf(1)
            for j in range(n):
                a[i, j] = power
                power *= grid[k]
            a[i, n] = (-1) ** i / w[k]
            b[i] = f[k]
        s = lu_solve(a, b)
        c = [s[j] for j in range(n)]
        level = abs(s[n])
        e = []
        for k in range(m):
            p = mpf(0)
            for j in reversed(range(n)):
                p = p * grid[k] + c[j]
            e.append(w[k] * (f[k] - p))
        # extremes: the largest of each run of one sign
        runs = []
        for k in range(m):
            if runs and (e[k] > 0) == (e[runs[-1]] > 0):
                if abs(e[k]) > abs(e[runs[-1]]):
                    runs[-1] = k
            else:
                runs.append(k)
        while len(runs) > n + 1:
            if abs(e[runs[0]]) < abs(e[runs[-1]]):
                runs.pop(0)
            else:
                runs.pop()
        worst = max(abs(x) for x in e)
        if len(runs) < n + 1 or worst <= level * (1 + mpf(10) ** -6):
            break
        ref = runs
    return c, worst


def fit(name, f, w, a, b, n, rounding, points=800):
    grid = [a + (b - a) * (1 - cos(pi * (k + mpf(1) / 2) / points)) / 2 for k in range(points)]
    fv = [f(u) for u in grid]
    wv = [abs(w(u)) for u in grid]
    done = []
    if a < 0:  # the exchange cannot go on around u = 0: plain rounding
        c, ideal = remez(grid, fv, wv, n)
        done = [rounding(x) for x in c]
        for i in range(points):
            p = mpf(0)
            for x in reversed(done):
                p = p * grid[i] + x
            fv[i] -= p
        n = 0
    for k in range(n):
        try:
            c, worst = remez(grid, fv, wv, n - k)
        except ZeroDivisionError:  # nothing left to gain: the rest of the last fit, rounded
            c = c[1:]
        if k == 0:
            ideal = worst
        c0 = rounding(c[0])
        done.append(c0)
        fv = [(fv[i] - c0) / grid[i] for i in range(points)]
        wv = [wv[i] * abs(grid[i]) for i in range(points)]
    worst = max(wv[i] * abs(fv[i]) for i in range(points))
    print(f'{name}: error {float(ideal):.2e}, rounded {float(worst):.2e}')
    for c in done:
        text = '%.9gf' % float(c) if rounding is as_f32 else repr(float(c))
        print('   ', text)
    return done


def odd(f, n, a, b, rounding, name):
    """f(r) = r + r^3 p(r^2), relative error."""
    return fit(name, lambda u: (f(sqrt(u)) / sqrt(u) - 1) / u, lambda u: u * sqrt(u) / f(sqrt(u)),
               mpf(a), mpf(b), n, rounding, 300)


def scaled_erfc(v):
    """erfc(x) exp(x^2) (1 + 2x) at v = (x - 2.5) / (x + 2.5)"""
    x = mpf('2.5') * (1 + v) / (1 - v)
    return erfc(x) * exp(x * x) * (1 + 2 * x)


def erfc_over(v):
    """erfc(x) exp(x^2) / v at v = 1 / (x + 3)"""
    x = 1 / v - 3
    return erfc(x) * exp(x * x) / v


def main():
    tiny, h = '1e-14', log(2) / 2 * mpf('1.0001')
    quarter = (pi / 4 * mpf('1.001')) ** 2
    eighth = (sqrt(mpf(2)) - 1) ** 2 * mpf('1.0001')
    low, high = sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1
    log_s = (high / (2 + high)) ** 2 * mpf('1.001')
    for rounding, name, n_exp, n_sin, n_atan, n_asin, n_tanh, n_sinh in (
            (as_f32, 'f32', 5, 3, 5, 5, 4, 4), (as_f64, 'f64', 11, 7, 12, 13, 11, 7)):
        fit('exp_tail ' + name, lambda r: (expm1(r) - r) / r ** 2, lambda r: r ** 2 / expm1(r),
            -h, h, n_exp, rounding)
        odd(sin, n_sin, tiny, quarter, rounding, 'sin ' + name)
        fit('cos ' + name, lambda u: (cos(sqrt(u)) - 1 + u / 2) / u ** 2,
            lambda u: u ** 2 / cos(sqrt(u)), mpf(tiny), quarter, n_sin, rounding, 300)
        odd(atan, n_atan, tiny, eighth, rounding, 'atan ' + name)
        odd(asin, n_asin, tiny, '0.25', rounding, 'asin ' + name)
        odd(tanh, n_tanh, tiny, '0.26' if name == 'f32' else '0.3026', rounding, 'tanh ' + name)
        odd(sinh, n_sinh, tiny, '1.0001', rounding, 'sinh ' + name)
    fit('exp_poly f32', lambda r: (expm1(r) - r) / r ** 2, lambda r: r ** 2 / exp(r), -h, h, 5, as_f32)
    fit('log_tail f32', lambda f: (log1p(f) - f + f * f / 2) / f ** 3, lambda f: f ** 3 / log1p(f),
        low, high, 8, as_f32)
    fit('erf f32', lambda t: -log(erfc(t)) / t - as_f32(2 / sqrt(pi)),
        lambda t: erfc(t) * t / erf(t), mpf('1e-6'), mpf('3.925'), 9, as_f32, 400)
    fit('erfc f32', erfc_over, lambda v: 1 / erfc_over(v), 1 / mpf('13.2'), 1 / mpf(3), 12, as_f64, 200)
    fit('exp in erfc f32', exp, lambda r: 1 / exp(r), -h, h, 8, as_f64)
    series = lambda u: log1p(sqrt(u)) - log1p(-sqrt(u))
    fit('log_series f64', lambda u: (series(u) / sqrt(u) - 2) / u,
        lambda u: u * sqrt(u) / series(u), mpf(tiny), log_s, 8, as_f64, 300)
    fit('log_double f64', lambda u: (series(u) / sqrt(u) - 2 - 2 * u / 3) / u ** 2,
        lambda u: u * u * sqrt(u) / series(u), mpf(tiny), log_s, 7, as_f64, 300)
    fit('erf f64', lambda u: erf(sqrt(u)) / sqrt(u) - 1, lambda u: sqrt(u) / erf(sqrt(u)),
        mpf(tiny), mpf('1.001'), 12, as_f64, 300)
    fit('erfc_large f64', scaled_erfc, lambda v: 1 / scaled_erfc(v), mpf('-0.6723'), mpf('0.8361'), 22,
        as_f64, 200)


if __name__ == '__main__':
    main()
