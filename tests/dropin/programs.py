# Compiled clients of scripts/dropin: a plain MPI program and NVIDIA's nccl-tests, each run under mpirun.
import concurrent.futures
import glob
import os
import shutil
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RANKS = 4
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(RANKS)]
TESTS = ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "reduce", "alltoall", "alltoallv", "scatter", "gather",
         "sendrecv", "hypercube")
EVERYTHING = "-b 8 -e 1M -f 32 -d all -o all -c 1 -n 2 -w 1"
BRIEF = "-b 8 -e 16M -f 32 -c 1 -n 4 -w 1"
VARIANTS = {"-G": "-G 2", "-R 1": "-R 1", "-R 2": "-R 2", "-z": "-z 1", "-u": "-u 1", "-t": "-t 2"}
VARIED = ("all_reduce", "alltoall", "sendrecv")


def names(options):
    found = ["MPI program", "nccl-tests"] if not options.nccl_tests else ["MPI program"]
    if options.nccl_tests:
        found += [f"nccl-tests {test}: types all, ops all" for test in TESTS]
        found += [f"nccl-tests {test}: {variant}" for variant in VARIANTS for test in VARIED]
    return found


def attempt(name, command, options, results, mps, good, limit=40, extra=None):
    """Runs one program under mpirun. `good` finds the text of its line in its output, or returns None."""
    log = os.path.join(options.logs, "".join(c if c.isalnum() else "_" for c in name) + ".log")
    environment = {**os.environ, **mps.environment(), "NCCL_SOCKET_IFNAME": "lo", **(extra or {})}
    begin = time.monotonic()
    with open(log, "wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 15)  # mpirun ends its ranks
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
            code = None
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    found = next((text for text in map(good, lines) if text), None)
    took = time.monotonic() - begin
    if code == 0 and found:
        results.add(name, "pass", found, took)
        return
    telling = [line for line in lines if any(word in line for word in ("rror", "WARN", "FAILED", "failure", "not "))]
    how = f"timed out after {limit} s" if code is None else f"exit status {code}"
    results.add(name, "fail", f"{how}: {(telling or lines or ['no output'])[0]}", took)
    if code != 0:
        mps.restart()


def mpi_program(options, results, mps):
    name = "MPI program"
    if not results.wanted(name):
        return
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        results.add(name, "skip", "no mpicc or mpirun here")
        return
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    cuda = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    program, library = os.path.join(options.logs, "mpi_program"), os.path.dirname(options.library)
    build = ["mpicc", "-O1", f"-I{ROOT}/include", f"-I{cuda}/include", os.path.join(HERE, "mpi_program.c"), "-o", program,
             options.library, f"-L{cuda}/lib64", "-lcudart", f"-Wl,-rpath,{library}", f"-Wl,-rpath,{cuda}/lib64"]
    made = subprocess.run(build, capture_output=True, text=True, check=False)
    if made.returncode:
        results.add(name, "fail", f"it does not compile: {made.stderr}")
        return
    attempt(name, [*MPIRUN, program], options, results, mps, lambda line: line if "all right" in line else None)


def no_wrong_values(line):
    return line.lstrip("# ") if "Out of bounds values : 0 OK" in line else None


def nccl_tests(options, results, mps):
    if not options.nccl_tests:
        if results.wanted("nccl-tests"):
            results.add("nccl-tests", "skip", "NCCL_TESTS_DIR names no folder of its programs (built with MPI=1)")
        return
    if not shutil.which("mpirun"):
        results.add("nccl-tests", "skip", "no mpirun here")
        return
    devices = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.count("GPU ")
    wanted = [(f"nccl-tests {test}: types all, ops all", test, EVERYTHING) for test in TESTS]
    wanted += [(f"nccl-tests {test}: {variant}", test, f"{BRIEF} {flags}") for variant, flags in VARIANTS.items() for test in VARIED]
    jobs = []
    for name, test, flags in wanted:
        if not results.wanted(name):
            continue
        if "-t 2" in flags and devices < 2 * RANKS:
            results.add(name, "skip", f"nccl-tests gives every thread a GPU of its own; there is {devices}, not {2 * RANKS}")
            continue
        programs = sorted(glob.glob(os.path.join(options.nccl_tests, f"{test}_perf*")))
        if not programs:
            results.add(name, "skip", f"there is no {test}_perf in {options.nccl_tests}")
            continue
        command = [*MPIRUN, "env", f"LD_PRELOAD={options.library}", programs[0], "-g", "1", *flags.split()]

        jobs.append((name, command))

    def one(name, command, beside):
        if results.out_of_time():
            results.add(name, "fail", f"not run: {options.budget:.0f} s were over (--budget)")
            return
        # The thread blocks of all jobs on the GPU must fit.
        extra = {"NCCL_TESTS_DEVICE": "0", **({"NCCL_MAX_CTAS": "10"} if beside else {})}
        attempt(name, command, options, results, mps, no_wrong_values, extra=extra)

    for job in jobs[:1]:  # one job as users run it, the others three at a time
        one(*job, beside=False)
    mps.hold()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(one, *job, beside=True) for job in jobs[1:]]:
            done.result()
    mps.let_go()
