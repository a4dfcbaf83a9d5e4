"""Twenty steps of each optimizer, schedules and clipping as PyTorch computes them: writes tests/unit/training_cases.h.
The network is small and its numbers are formulas, so that test_train.c makes the same ones: x[i] = sin(i + 1), the
target cos(2 * i), w[i] = sin(3 * i) / 2, b = 0, in f32; loss = mse(tanh(x @ w.T) + b, target).
Usage: python tests/reference/training.py (needs torch)"""
import math, os, subprocess
import torch

class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1 as in google/automl: not in torch."""
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group['params']:
                grad = -p.grad if group['maximize'] else p.grad
                m = self.state[p].setdefault('exp_avg', torch.zeros_like(p))
                b1, b2 = group['betas']
                p.mul_(1 - group['lr'] * group['weight_decay'])
                p.add_((m * b1 + grad * (1 - b1)).sign(), alpha=-group['lr'])
                m.mul_(b2).add_(grad, alpha=1 - b2)

def numbers(f, *sizes): return torch.tensor([f(i) for i in range(math.prod(sizes))], dtype=torch.float64).reshape(sizes).float()

def run(name, arguments, second, clip=0.0, value=0.0):
    x, y = numbers(lambda i: math.sin(i + 1), 6, 4), numbers(lambda i: math.cos(2 * i), 6, 3)
    w = numbers(lambda i: math.sin(3 * i) / 2, 3, 4).requires_grad_()
    b = torch.zeros(3, requires_grad=True)
    make = Lion if name == 'Lion' else getattr(torch.optim, name)
    groups = [dict(params=[w])] + ([dict(params=[b], **eval(f'dict({second})'))] if second is not None else [])
    optimizer = make(groups, **eval(f'dict({arguments})'))
    norm = 0.0
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(torch.tanh(x @ w.T) + b, y)
        loss.backward()
        if clip: norm = torch.nn.utils.clip_grad_norm_([w, b], clip).item()
        if value: torch.nn.utils.clip_grad_value_([w, b], value)
        optimizer.step()
    return [loss.item(), norm] + w.detach().flatten().tolist() + b.detach().tolist()

def run_half(name, arguments, dtype, clip):
    """Six steps of 8 parameters of half precision whose gradients have squares that are no f16; with clip, the order of a
    norm, beside 1000 parameters of one element, whose norms add up to more than their own dtype counts."""
    w = numbers(lambda i: math.sin(3 * i) / 2, 8).to(dtype).requires_grad_()
    many = [torch.zeros(1, dtype=dtype, requires_grad=True) for _ in range(1000)]
    optimizer = (Lion if name == 'Lion' else getattr(torch.optim, name))([w], **eval(f'dict({arguments})'))
    norm = 0.0
    for t in range(6):
        w.grad = numbers(lambda i: 300 * math.sin(i + 1 + t), 8).to(dtype)
        if clip:
            for p in many: p.grad = torch.ones_like(p)
            norm = torch.nn.utils.clip_grad_norm_([w] + many, 1.0, clip).item()
        optimizer.step()
    return [norm] + w.detach().float().tolist()

def run_late(arguments):
    """Six steps of two parameters of f64, of which the second has a gradient in steps 2, 3 and 6 alone."""
    p = [torch.full((1,), 0.5 + i, dtype=torch.float64, requires_grad=True) for i in range(2)]
    optimizer, values = torch.optim.SGD(p, **eval(f'dict({arguments})')), []
    for step in range(6):
        optimizer.zero_grad()
        (torch.sin(p[0]) + (torch.cos(p[1]) if step in (1, 2, 5) else 0)).sum().backward()
        optimizer.step()
        values += [x.item() for x in p]
    return values

LATE = ['lr=1, momentum=0.9, dampening=0.5', 'lr=0.1, momentum=0.5, dampening=0.3, weight_decay=0.2, maximize=True', 'lr=0.1, momentum=0.9', 'lr=0.1, dampening=0.5']

def run_scaled(name, arguments, scaling):
    """Eight steps whose gradients are no numbers in some: the scale behind each, then the four parameters."""
    w = numbers(lambda i: math.sin(3 * i) / 2, 4).reshape(2, 2).requires_grad_()
    optimizer = (Lion if name == 'Lion' else getattr(torch.optim, name))([w], **eval(f'dict({arguments})'))
    scaler, scales = torch.amp.GradScaler('cpu', **eval(f'dict({scaling})')), []
    for step in range(8):
        optimizer.zero_grad()
        g = numbers(lambda i: math.sin(i + 1 + step), 4).reshape(2, 2)
        if step in (0, 4): g[1, 1] = math.inf if step else math.nan
        scaler.scale((w * g).sum()).backward()
        if step % 2: scaler.unscale_(optimizer); torch.nn.utils.clip_grad_norm_([w], 0.5)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales + w.detach().flatten().tolist()

SCALED = [(name, arguments, 'growth_interval=2') for name, arguments in [('SGD', 'lr=0.1'), ('SGD', 'lr=0.1, momentum=0.9, dampening=0.5'), ('Adam', 'lr=0.1, amsgrad=True'),
          ('AdamW', 'lr=0.1, weight_decay=0.5'), ('Adagrad', 'lr=0.1, lr_decay=0.5'), ('RMSprop', 'lr=0.1, momentum=0.5, centered=True'), ('Lion', 'lr=0.1, weight_decay=0.5'), ('Muon', 'lr=0.1')]]
SCALED += [('SGD', 'lr=0.1', 'init_scale=100, growth_factor=1.5, backoff_factor=0.3, growth_interval=1'), ('SGD', 'lr=0.1', ''), ('SGD', 'lr=0.1', 'init_scale=2e38, growth_interval=1'), ('SGD', 'lr=0.1', 'enabled=False')]

HALF = [('SGD', 'lr=0.01', 0), ('SGD', 'lr=0.01, momentum=0.9, weight_decay=0.1', 0), ('Adam', 'lr=0.1, weight_decay=0.1', 0), ('Adam', 'lr=0.1, amsgrad=True', 0),
        ('AdamW', 'lr=0.1', 0), ('Adagrad', 'lr=0.1', 0), ('RMSprop', 'lr=0.1', 0), ('RMSprop', 'lr=0.02, centered=True, momentum=0.9', 0), ('Lion', 'lr=0.1', 0),
        ('SGD', 'lr=0.5', 2.0), ('SGD', 'lr=0.5', 1.0), ('SGD', 'lr=0.5', 3.0), ('SGD', 'lr=0.5', math.inf)]

OPTIMIZERS = [
    ('SGD', 'lr=0.1', ''), ('SGD', 'lr=0.1, momentum=0.9', 'lr=0.05'), ('SGD', 'lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1', ''),
    ('SGD', 'lr=0.1, momentum=0.9, nesterov=True, maximize=True', 'momentum=0.5'),
    ('Adam', 'lr=0.01', ''), ('Adam', 'lr=0.02, betas=(0.8, 0.9), eps=1e-4, weight_decay=0.1', 'weight_decay=0'), ('Adam', 'lr=0.05, betas=(0.5, 0.6), amsgrad=True, maximize=True', ''),
    ('Adam', 'lr=0.05, betas=(0.3, 0.9)', ''),
    ('AdamW', 'lr=0.01', 'weight_decay=0'), ('AdamW', 'lr=0.05, weight_decay=0.5, amsgrad=True', ''),
    ('Adagrad', 'lr=0.1', ''), ('Adagrad', 'lr=0.1, lr_decay=0.1, weight_decay=0.05, initial_accumulator_value=0.1', 'lr=0.2'),
    ('RMSprop', '', ''), ('RMSprop', 'alpha=0.9, momentum=0.5, weight_decay=0.1', ''), ('RMSprop', 'lr=0.02, centered=True, momentum=0.9', 'centered=False'),
    ('Lion', 'lr=0.01, weight_decay=0.1', 'lr=0.02'), ('Muon', 'lr=0.05', None), ('Muon', 'lr=0.02, nesterov=False, weight_decay=0, momentum=0.8, ns_steps=3', None),
]

def made_schedule(optimizer, name, arguments):
    given = eval(f'dict({arguments})')
    if name == 'ReduceLROnPlateau': return Plateau(optimizer, **given)
    if name == 'OneCycleLR': given = dict({k: v for k, v in given.items() if k != 'anneal_linear'}, cycle_momentum=False, anneal_strategy='linear' if given.get('anneal_linear') else 'cos')
    return getattr(torch.optim.lr_scheduler, name)(optimizer, **given)

class Plateau:
    def __init__(self, optimizer, maximize=False, absolute=False, **more):
        more = dict(more, mode='max' if maximize else 'min', threshold_mode='abs' if absolute else 'rel')
        self.schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **more)
    def step(self, metric=1): self.schedule.step(metric)
METRICS = [[5, 4, 4.5, 4.2, 4.1, 3.9999, 4, 4, 4, 4, 3, 3, 3.5, 3.2, 3.1, 3, 3, 3, 3, 3, 3, 3, 3, 3],
           [1] * 24, [1 - 0.05 * i for i in range(24)], [-2 + 0.1 * i - (i % 5) * 0.15 for i in range(24)]]

def schedule(stages, metric):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    made = [made_schedule(optimizer, name, arguments) for _, name, arguments in stages]
    one = made[0] if len(made) == 1 else torch.optim.lr_scheduler.SequentialLR(optimizer, made, milestones=[m for m, _, _ in stages[1:]])
    rates = []
    for i in range(24):
        rates.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        one.step(METRICS[metric][i]) if isinstance(one, Plateau) else (i < 23 and one.step())
    return rates

def chain(schedules, milestone, written, added):
    """Two schedules of one optimizer, both stepped, or one behind the other from a milestone on: 24 rates of the first group,
    whose rate is written before a step, then 24 of a group that is added before a step."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    made = [made_schedule(optimizer, *each) for each in schedules if each[0]]
    if milestone: made = [torch.optim.lr_scheduler.SequentialLR(optimizer, made, milestones=[milestone])]
    rates = []
    for i in range(24):
        if i == written: optimizer.param_groups[0]['lr'] = 0.2
        if i == added: optimizer.add_param_group(dict(params=[torch.zeros(1, requires_grad=True)], lr=1))
        rates.append([group['lr'] for group in optimizer.param_groups] + [math.nan])
        optimizer.step()
        for each in made: each.step()
    return [r[0] for r in rates] + [r[1] for r in rates]

NONE = (None, None)
CHAINS = [
    ([('LinearLR', 'start_factor=0.1, total_iters=5'), ('StepLR', 'step_size=4, gamma=0.5')], 0, -1, -1), ([('LinearLR', 'start_factor=0.1, total_iters=5'), ('CosineAnnealingLR', 'T_max=9, eta_min=0.01')], 0, -1, -1),
    ([('StepLR', 'step_size=5, gamma=0.5'), NONE], 0, 7, 3), ([('LinearLR', 'start_factor=0.2, end_factor=0.7, total_iters=9'), NONE], 0, 4, 6), ([('CosineAnnealingLR', 'T_max=7, eta_min=0.02'), NONE], 0, 3, -1),
    ([('CosineAnnealingLR', 'T_max=40'), NONE], 0, 9, 5), ([('OneCycleLR', 'max_lr=0.7, total_steps=24'), NONE], 0, 7, -1), ([('OneCycleLR', 'max_lr=0.7, total_steps=30, div_factor=10'), ('CosineAnnealingLR', 'T_max=3')], 0, -1, -1),
    ([('LinearLR', 'start_factor=0.1, total_iters=4'), ('CosineAnnealingLR', 'T_max=5')], 6, 3, -1), ([('StepLR', 'step_size=2, gamma=0.5'), ('LinearLR', 'start_factor=0.3, total_iters=5')], 7, 9, -1),
    ([('CosineAnnealingLR', 'T_max=4'), ('StepLR', 'step_size=3, gamma=0.5')], 5, 2, 8), ([('ExponentialLR', 'gamma=0.9'), NONE], 0, 7, 3), ([('ReduceLROnPlateau', 'patience=1, factor=0.5'), ('StepLR', 'step_size=4, gamma=0.9')], 0, 8, 2),
]

SCHEDULES = [
    [(0, 'LinearLR', '')], [(0, 'LinearLR', 'start_factor=0.1, end_factor=0.8, total_iters=10')], [(0, 'StepLR', 'step_size=7')], [(0, 'StepLR', 'step_size=5, gamma=0.5')],
    [(0, 'CosineAnnealingLR', 'T_max=20')], [(0, 'CosineAnnealingLR', 'T_max=9, eta_min=0.1')], [(0, 'ExponentialLR', 'gamma=0.8')],
    [(0, 'OneCycleLR', 'max_lr=0.7, total_steps=24')], [(0, 'OneCycleLR', 'max_lr=0.7, total_steps=24, pct_start=0.4, anneal_linear=True, three_phase=True, div_factor=10')],
    [(0, 'LinearLR', 'start_factor=0.01, total_iters=4'), (4, 'CosineAnnealingLR', 'T_max=20')],
]
PLATEAUS = ['patience=2, cooldown=1', 'patience=1, factor=0.5, threshold=0.2, absolute=True, min_lr=0.1', 'patience=2, factor=0.5, threshold=0.1']

def row(values): return '{' + ', '.join('NAN' if math.isnan(v) else f'{v:.9g}' for v in values) + '}'
def quoted(text): return 'NULL' if text is None else f'"{text}"'
lines = [f'/* Written by tests/reference/training.py with torch {torch.__version__.split("+")[0]}. */', '#ifndef CARBIDE_TEST_TRAINING_CASES_H', '#define CARBIDE_TEST_TRAINING_CASES_H', '', '#include <carbide.h>', '#include <math.h>', '',
         '/* loss, norm, w[12], b[3]; second: the arguments of the group of b, NULL: there is none */',
         'static const struct OptimizerCase { const char *name, *arguments, *second; double clip, value, expected[17]; } optimizer_cases[] = {']
for name, arguments, second in OPTIMIZERS: lines.append(f'{{"{name}", "{arguments}", {quoted(second)}, 0, 0, {row(run(name, arguments, second))}}},')
for clip, value in [(0.1, 0), (0, 0.05)]: lines.append(f'{{"SGD", "lr=0.5", "", {clip}, {value}, {row(run("SGD", "lr=0.5", "", clip, value))}}},')
lines += ['};', '', f'static const double schedule_metrics[{len(METRICS)}][24] = {{' + ', '.join('{' + ', '.join(map(repr, m)) + '}' for m in METRICS) + '};', '', '/* of a rate of 0.5; then: a second one from step milestone on */',
          'static const struct ScheduleCase { const char *name, *arguments; int milestone; const char *then, *rest; int metric; double expected[24]; } schedule_cases[] = {']
plateaus = [([(0, 'ReduceLROnPlateau', more + arguments)], m) for arguments in PLATEAUS for more in ('', 'maximize=True, ') for m in range(len(METRICS))]
for stages, metric in [(stages, 0) for stages in SCHEDULES] + plateaus:
    m, n, a = stages[1] if len(stages) > 1 else (0, None, None)
    lines.append(f'{{"{stages[0][1]}", "{stages[0][2]}", {m}, {quoted(n)}, {quoted(a)}, {metric}, {row(schedule(stages, metric))}}},')
lines += ['};', '', '/* of a rate of 0.5, which becomes 0.2 before step written: both schedules are stepped, or, of a', ' * milestone, one behind the other; 24 rates of it, then of a group of 1 that is added before step', ' * added */',
          'static const struct ChainCase { const char *made[2][2]; int milestone, written, added; double expected[48]; } chain_cases[] = {']
for schedules, milestone, written, added in CHAINS:
    made = ', '.join(f'{{{quoted(n)}, {quoted(a)}}}' for n, a in schedules)
    lines.append(f'{{{{{made}}}, {milestone}, {written}, {added}, {{{", ".join("NAN" if math.isnan(v) else f"{v:.17g}" for v in chain(schedules, milestone, written, added))}}}}},')
lines += ['};', '', '/* of half precision; clip: the order of the norm, 0: none; expected: the norm and w[8] */',
          'static const struct HalfCase { const char *name, *arguments; cb_dtype dtype; double clip, expected[9]; } half_cases[] = {']
for name, arguments, clip in HALF:
    for dtype in ('F16', 'BF16'):
        expected = run_half(name, arguments, torch.float16 if dtype == 'F16' else torch.bfloat16, clip)
        lines.append(f'{{"{name}", "{arguments}", CB_{dtype}, {"INFINITY" if math.isinf(clip) else clip}, {row(expected)}}},')
lines += ['};', '', '/* of SGD: two numbers behind each of six steps, the second without a gradient in 1, 4 and 5 */',
          'static const struct LateCase { const char *arguments; double expected[12]; } late_cases[] = {']
for arguments in LATE: lines.append(f'{{"{arguments}", {{{", ".join(f"{v:.17g}" for v in run_late(arguments))}}}}},')
lines += ['};', '', '/* the scale behind each of eight steps, of which 0 and 4 have no numbers, then w[4] */',
          'static const struct ScaledCase { const char *name, *arguments, *scaling; double expected[12]; } scaled_cases[] = {']
for name, arguments, scaling in SCALED: lines.append(f'{{"{name}", "{arguments}", "{scaling}", {row(run_scaled(name, arguments, scaling))}}},')
lines += ['};', '#endif', '']
path = os.path.join(os.path.dirname(__file__), '../unit/training_cases.h')
open(path, 'w').write('\n'.join(lines))
subprocess.run(['clang-format', '-i', path], check=True)
