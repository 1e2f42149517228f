'use strict';

// Tasks that take turns by the semaphore of redis-semaphore on ioredis, with the options that it has by itself but for
// the lease and the time that it waits, which has no limit.
//
// Arguments: the server's port, the key, the number of tasks, the length of a section in ms, the lease in ms,
// how many permits there are.

const { load, run } = require('./crowd');

const [{ Redis }, { Semaphore }] = load('ioredis', 'redis-semaphore');

const [port, key, tasks, section, lease, permits] = process.argv.slice(2);
const redis = new Redis({ host: '127.0.0.1', port: Number(port) });

async function acquire() {
    const semaphore = new Semaphore(redis, key, Number(permits), {
        lockTimeout: Number(lease),
        acquireTimeout: Number.POSITIVE_INFINITY,
    });
    await semaphore.acquire();
    return () => semaphore.release();
}

run(tasks, section, acquire, () => redis.disconnect());
