#!/usr/bin/env python3
"""Commands of a host in a test's directory: a systemctl with the units vgpu-device@NAME, their journal, and
vgpu-device itself. State lies in files: NAME.pid, NAME.log, and NAME.wanted while the unit is to run."""
import os
import shutil
import signal
import subprocess
import sys
import time

HOME = os.path.dirname(os.path.abspath(__file__))
UNITS = os.path.join(HOME, "units")
PATIENCE = 60


def path(name, kind):
    return os.path.join(UNITS, f"{name}.{kind}")


def read(name, kind):
    try:
        with open(path(name, kind)) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def alive(name):
    pid = read(name, "pid")
    try:
        with open(f"/proc/{pid}/stat") as file:
            return pid != "" and file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wanted(name):
    return os.path.exists(path(name, "wanted"))


def state(name):
    if alive(name):
        return "active" if "\nready\n" in "\n" + read(name, "log") else "activating"
    return "failed" if wanted(name) else "inactive"


def until(done, patience=PATIENCE):
    end = time.monotonic() + patience
    while not done() and time.monotonic() < end:
        time.sleep(0.01)
    return done()


def start(name):
    if alive(name):
        return
    open(path(name, "wanted"), "w").close()
    folder = os.path.join(HOME, "run", name)
    os.makedirs(folder, exist_ok=True)
    environment = dict(os.environ, RUNTIME_DIRECTORY=folder)
    with open(path(name, "log"), "w") as log:
        process = subprocess.Popen(
            [os.environ["VGPU_DEVICE"], "serve", "--config", os.path.join(HOME, "etc", f"{name}.toml")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True)
    with open(path(name, "pid.new"), "w") as file:
        file.write(str(process.pid))
    os.rename(path(name, "pid.new"), path(name, "pid"))


def end(name):
    if alive(name):
        os.kill(int(read(name, "pid")), signal.SIGTERM)
        until(lambda: not alive(name))
    if wanted(name):
        os.remove(path(name, "wanted"))


def order(line):
    with open(os.path.join(HOME, "orders"), "a") as file:
        file.write(f"{line}\n")


def orders():
    with open(os.path.join(HOME, "orders")) as file:
        return file.read().splitlines()


def systemctl(words):
    verb, names = words[0], [word for word in words[1:] if not word.startswith("--")]
    names = [word.removeprefix("vgpu-device@").removesuffix(".service") for word in names]
    if verb == "show":
        with open(os.path.join(HOME, "looks"), "a") as file:
            file.write(".")
    if os.path.exists(os.path.join(HOME, f"no-{verb}")):
        sys.exit(f"Failed to {verb}: Connection timed out")
    if verb in ("start", "stop", "restart"):
        order(f"{verb} {names[0]}")
    if verb == "show":
        for name in names:
            print(f"Id=vgpu-device@{name}.service\nActiveState={state(name)}\n")
        return
    [name] = names
    if verb == "restart":
        end(name)
        start(name)
    elif verb == "start":
        start(name)
        until(lambda: state(name) != "activating")
        if state(name) != "active":
            sys.exit(f"Job for vgpu-device@{name}.service failed because the control process exited")
    elif verb == "stop":
        slow = os.path.exists(os.path.join(HOME, "slow-stop"))
        if slow:
            # Until somebody starts it meanwhile, as nobody must.
            until(lambda: orders()[-1] != f"stop {name}", 2)
        end(name)
        shutil.rmtree(os.path.join(HOME, "run", name), ignore_errors=True)
        if slow:
            order(f"stopped {name}")
    elif verb == "reset-failed":
        if state(name) == "failed":
            os.remove(path(name, "wanted"))
    else:
        sys.exit(f"unknown: {verb}")


command, words = sys.argv[1], sys.argv[2:]
if command == "systemctl":
    systemctl(words)
elif command == "journalctl":
    unit = words[words.index("--unit") + 1]
    print(read(unit.removeprefix("vgpu-device@").removesuffix(".service"), "log"))
elif command == "vgpu-device":
    os.execv(os.environ["VGPU_DEVICE"], [command, *words])
else:
    sys.exit(f"unknown: {command}")
