'use strict';

// Tasks that take turns by node-redlock on ioredis, with the options that it has by itself but for the
// number of tries, which has no limit.
//
// Arguments: the server's port, the key, the number of tasks, the length of a section in ms, the lease in ms.

const { load, run } = require('./crowd');

const [{ Redis }, { default: Redlock }] = load('ioredis', 'redlock');

const [port, key, tasks, section, lease] = process.argv.slice(2);
const redis = new Redis({ host: '127.0.0.1', port: Number(port) });
const redlock = new Redlock([redis], { retryCount: -1 });

async function acquire() {
    const lock = await redlock.acquire([key], Number(lease));
    return () => lock.release();
}

run(tasks, section, acquire, () => redis.disconnect());
