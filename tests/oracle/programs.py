"""Random programs beside NumPy.
    programs.py run SEED COUNT EVERY [WORKERS]   programs SEED .. SEED + COUNT - 1; one in EVERY is compiled
                                                 by the C compiler, too (0: none)
    programs.py check FILE ...                   the programs of the files, separated by lines of ---
    programs.py show SEED EVERY                  the program of a seed
A program runs in a process of its own, so that one which crashes or hangs is a finding like any other.
What fails is made smaller, and printed as a text for tests/oracle/found.txt. Ends with 1 when any does."""
import json, os, select, subprocess, sys, time, traceback
import needs

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT = 60 # seconds for one program

# ---- the process that runs programs --------------------------------------------------------------

def serve():
    import generate, program, values
    for request in sys.stdin:
        request = json.loads(request)
        answer = {}
        try:
            if 'seed' in request:
                made = generate.generate(request['seed'], request['every'])
                answer['text'] = str(made)
                print(json.dumps({'text': answer['text']}), flush=True)
            else: made = program.parse(request['text'])
            found = program.run(made)
            if found: answer['found'] = list(found)
        except values.Refused as refused: answer['refused'] = str(refused)
        except Exception as error: # of the judge or the generator, whose programs are to be right
            if 'seed' in request: answer['found'] = ['', f'the judge failed: {traceback.format_exc()}']
            else: answer['refused'] = repr(error)
        print(json.dumps(answer), flush=True)

class Worker:
    """A process that runs one program after the other, and is replaced when it dies."""
    def __init__(self): self.start()
    def start(self):
        self.process = subprocess.Popen([sys.executable, '-B', os.path.join(HERE, 'programs.py'), 'serve'],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    def ask(self, request):
        self.text, self.begin = request.get('text'), time.time()
        self.process.stdin.write(json.dumps(request).encode() + b'\n')
        self.process.stdin.flush()
    def answer(self):
        """When its pipe has something: the answer, or None while there is only the text of a program."""
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.start()
            return {'text': self.text, 'found': ['', f'the process ended with {code}']}
        reply = json.loads(line)
        if set(reply) == {'text'} and self.text is None:
            self.text = reply['text']
            return None
        return {'text': self.text, **reply}
    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close(), self.process.stdout.close()
    def overdue(self):
        if time.time() - self.begin < LIMIT: return None
        self.stop()
        self.start()
        return {'text': self.text, 'found': ['', f'did not end in {LIMIT} s']}
    def run(self, request):
        """Waits for the answer."""
        self.ask(request)
        while True:
            ready, _, _ = select.select([self.process.stdout], [], [], 1)
            answer = self.answer() if ready else self.overdue()
            if answer: return answer

# ---- what is found -------------------------------------------------------------------------------

def sort_of(found):
    """The same way to fail: wrong elements, an error, the end of the process."""
    what = found[1]
    for word in ('ended', 'did not end', 'error', 'elements of', 'strides', 'memory', 'bits'):
        if word in what: return word
    return what

def smaller(worker, text, found):
    sys.path.insert(0, HERE)
    from program import parse
    from shrink import shrink
    program = parse(text)
    if found[0] in program.modes and sort_of(found) != 'bits': program.modes = [found[0]]
    def fails(candidate):
        answer = worker.run({'text': str(candidate)})
        return 'found' in answer and sort_of(answer['found']) == sort_of(found)
    if not fails(program): program = parse(text)
    program = shrink(program, fails)
    return str(program), worker.run({'text': str(program)}).get('found', found)

def report(worker, name, answer):
    print(f'---\n# {name}: {answer["found"][0]}: {answer["found"][1]}', flush=True)
    if not answer['text']: return print('# (no program: the generator failed)')
    text, found = smaller(worker, answer['text'], answer['found'])
    print(f'# smaller: {found[1]}\n{text}', end='', flush=True)

def run_all(requests, workers):
    """requests: (name, request). True when none fails."""
    free, busy, failures, count = [Worker() for _ in range(workers)], {}, [], 0
    requests = iter(requests)
    waiting = next(requests, None)
    while waiting or busy:
        while waiting and free:
            worker = free.pop()
            worker.ask(waiting[1])
            busy[worker.process.stdout] = worker, waiting[0]
            waiting = next(requests, None)
        ready, _, _ = select.select(list(busy), [], [], 1)
        for pipe in list(busy):
            worker, name = busy[pipe]
            answer = worker.answer() if pipe in ready else worker.overdue()
            if answer is None: continue
            del busy[pipe]
            count += 1
            if 'refused' in answer: print(f'# {name}: refused by the judge: {answer["refused"]}')
            if 'found' in answer:
                failures.append(name)
                report(worker, name, answer)
            free.append(worker)
    for worker in free: worker.stop()
    print(f'{count} programs, {len(failures)} with differences' + (f': {" ".join(failures)}' if failures else ''))
    return not failures

def main(arguments):
    needs.need('numpy')
    if arguments[:1] == ['serve']: return serve()
    if arguments[:1] == ['show']:
        import generate
        return print(generate.generate(int(arguments[1]), int(arguments[2])), end='')
    if arguments[:1] == ['run']:
        first, count, every = map(int, arguments[1:4])
        requests = ((f'seed {s}', {'seed': s, 'every': every}) for s in range(first, first + count))
        sys.exit(not run_all(requests, int(arguments[4]) if len(arguments) > 4 else 1))
    if arguments[:1] == ['check']:
        requests = []
        for file in arguments[1:]:
            texts = [t for t in open(file).read().split('---\n') if 'body' in t]
            requests += [(f'{os.path.basename(file)} {k}', {'text': t}) for k, t in enumerate(texts)]
        sys.exit(not run_all(requests, 2))
    sys.exit(__doc__)

if __name__ == '__main__': main(sys.argv[1:])
