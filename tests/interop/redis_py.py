"""redis-py's Lock, told what to do by lines on standard input: see other_client.hpp.

Arguments: the server's Unix socket, the lock's key. Answers "yes" or "no", and the end of the process to
anything unexpected.
"""

import sys
import time

try:
    import redis
    from redis.exceptions import LockNotOwnedError
except ImportError:
    print("absent", flush=True)
    sys.exit()

PAUSE = 0.005


class OtherClient:
    def __init__(self, socket, key):
        self.redis = redis.Redis(unix_socket_path=socket)
        self.redis.ping()
        self.key = key
        self.lock = None

    def acquire(self, wait, lease):
        self.lock = self.redis.lock(self.key, timeout=lease / 1000, sleep=PAUSE)
        return self.lock.acquire(blocking=wait > 0, blocking_timeout=wait / 1000)

    def extend(self, lease):
        return self.owned(lambda: self.lock.extend(lease / 1000, replace_ttl=True))

    def release(self):
        return self.owned(self.lock.release)

    def pass_through(self, rounds):
        for _ in range(rounds):
            with self.redis.lock(self.key, timeout=30, sleep=PAUSE):
                self.section()
        return True

    # As OverlapDetector does.
    def section(self):
        name = "overlap:sections:"
        inside, seen = self.redis.pipeline(transaction=False) \
            .incr(name + "inside").get(name + "counter").execute()
        if inside != 1:
            self.redis.incr(name + "overlaps")
        time.sleep(0.0002)
        self.redis.pipeline(transaction=False) \
            .set(name + "counter", int(seen or 0) + 1).incr(name + "sections").decr(name + "inside").execute()

    @staticmethod
    def owned(call):
        try:
            call()
            return True
        except LockNotOwnedError:
            return False


def main(socket, key):
    client = OtherClient(socket, key)
    print("ready", flush=True)
    for line in sys.stdin:
        action, *numbers = line.split()
        done = getattr(client, action)(*map(int, numbers))
        print("yes" if done else "no", flush=True)


main(*sys.argv[1:])
