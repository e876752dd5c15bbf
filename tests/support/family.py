"""A program whose children only SIGKILL ends: a child, one in a session of its own, and one by a
double fork in another. `pids` has their ids when all are there; what follows may tell them."""

FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def stay(pipe):
    os.write(pipe, f"{os.getpid()}\\n".encode())
    while True: time.sleep(60)
reads, writes = os.pipe()
if os.fork() == 0: stay(writes)
if os.fork() == 0:
    os.setsid(); stay(writes)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: stay(writes)
    os._exit(0)
pids = b""
while pids.count(b"\\n") < 3: pids += os.read(reads, 100)
"""
