# A private MPS daemon, so that the processes of a run share the GPU.
import os
import shutil
import subprocess
import tempfile


class Mps:
    """Started for a run. Restarted after ranks were killed, because their leftovers may disturb others."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="weft-mps-")  # kept after a restart, because waiting processes use it
        self.held = False  # several launches run: a restart would end the others
        self.wanted = False

    def environment(self):
        return {"CUDA_MPS_PIPE_DIRECTORY": os.path.join(self.folder, "pipe"),
                "CUDA_MPS_LOG_DIRECTORY": os.path.join(self.folder, "log")}

    def start(self):
        for name in ("pipe", "log"):
            os.makedirs(os.path.join(self.folder, name), exist_ok=True)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env={**os.environ, **self.environment()}, check=True,
                       stdin=subprocess.DEVNULL, timeout=30)

    def stop(self):
        try:
            subprocess.run(["nvidia-cuda-mps-control"], input="quit -t 5\n", text=True, timeout=20, check=False,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **self.environment()})
        except subprocess.TimeoutExpired:
            # A client that never ends keeps the daemon from ending. This daemon is ours, so it may be killed.
            with open(os.path.join(self.folder, "pipe", "nvidia-cuda-mps-control.pid"), encoding="utf-8") as file:
                os.kill(int(file.read()), 9)
        shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self):
        if self.held:
            self.wanted = True
            return
        self.wanted = False
        self.stop()
        self.start()

    def hold(self):
        self.held = True

    def let_go(self):
        self.held = False
        if self.wanted:
            self.restart()
