"""Threads that take turns by redis-py's Lock, with the options that it has by itself and a lease.

Arguments: the server's port, the key, the number of threads, the length of a section in ms, the lease in ms.
benchmarks/harness/other_client_crowd.hpp tells what is read and written.
"""

import sys
import threading
import time

try:
    import redis
except ImportError:
    print("absent", flush=True)
    sys.exit()


class Contender(threading.Thread):
    def __init__(self, lock, section, go, stop):
        super().__init__()
        self.lock, self.section, self.go, self.stop = lock, section, go, stop
        self.warm = threading.Event()
        self.passages = []

    def run(self):
        self.turn()
        self.warm.set()
        self.go.wait()
        while not self.stop.is_set():
            self.passages.append(self.turn())

    def turn(self):
        asked = time.monotonic_ns()
        self.lock.acquire()
        entered = time.monotonic_ns()
        if self.section:
            time.sleep(self.section)
        left = time.monotonic_ns()
        self.lock.release()
        return asked, entered, left


def main(port, key, threads, section, lease, *_permits):
    client = redis.Redis(host="127.0.0.1", port=int(port))
    go, stop = threading.Event(), threading.Event()
    contenders = [Contender(client.lock(key, timeout=int(lease) / 1000), int(section) / 1000, go, stop)
                  for _ in range(int(threads))]
    print("ready", flush=True)
    for contender in contenders:
        contender.start()
    for contender in contenders:
        contender.warm.wait()
    print("warm", flush=True)
    sys.stdin.readline()
    go.set()
    sys.stdin.readline()
    stop.set()
    for number, contender in enumerate(contenders):
        contender.join()
        for passage in contender.passages:
            print(number, *passage)
    print("end", flush=True)


main(*sys.argv[1:])
