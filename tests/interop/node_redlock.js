'use strict';

// node-redlock on ioredis, told what to do by lines on standard input: see other_client.hpp.
//
// Arguments: the server's Unix socket, the lock's key. Answers "yes" or "no", and the end of the process
// to anything unexpected.

const readline = require('readline');
const timers = require('timers/promises');

const pauseMs = 5;
const settings = { retryCount: 0, retryDelay: pauseMs, retryJitter: 0 };

function load() {
    try {
        const { Redis } = require('ioredis');
        const { default: Redlock, ...errors } = require('redlock');
        return { Redis, Redlock, ...errors };
    } catch (error) {
        if (error.code !== 'MODULE_NOT_FOUND') throw error;
        console.log('absent');
        process.exit();
    }
}
const { Redis, Redlock, ExecutionError, ResourceLockedError } = load();

// False where the server said that the lock is somebody else's. An error of any other kind is thrown.
async function succeeds(operation) {
    try {
        await operation;
        return true;
    } catch (error) {
        if (!(error instanceof ExecutionError) || error.attempts.length === 0) throw error;
        for (const attempt of error.attempts) {
            for (const cause of (await attempt).votesAgainst.values()) {
                if (!(cause instanceof ResourceLockedError)) throw cause;
            }
        }
        return false;
    }
}

class OtherClient {
    constructor(redis, key) {
        this.redis = redis;
        this.key = key;
        this.redlock = new Redlock([redis], settings);
        this.lock = null;
    }

    async acquire(wait, lease) {
        const retryCount = Math.ceil(wait / pauseMs);
        return succeeds(this.redlock.acquire([this.key], lease, { retryCount })
            .then((lock) => { this.lock = lock; }));
    }

    async extend(lease) {
        return succeeds(this.lock.extend(lease).then((lock) => { this.lock = lock; }));
    }

    async release() {
        return succeeds(this.lock.release());
    }

    async pass_through(rounds) {
        for (let i = 0; i < rounds; ++i) {
            const lock = await this.redlock.acquire([this.key], 30000, { retryCount: -1 });
            await this.section();
            await lock.release();
        }
        return true;
    }

    // As OverlapDetector does.
    async section() {
        const name = 'overlap:sections:';
        const [inside, seen] = await Promise.all(
            [this.redis.incr(name + 'inside'), this.redis.get(name + 'counter')]);
        if (inside !== 1) await this.redis.incr(name + 'overlaps');
        await timers.setTimeout(1);
        await Promise.all([this.redis.set(name + 'counter', Number(seen) + 1),
            this.redis.incr(name + 'sections'), this.redis.decr(name + 'inside')]);
    }
}

async function main(socket, key) {
    const redis = new Redis({ path: socket, maxRetriesPerRequest: 0 });
    redis.on('error', (error) => { throw error; });
    await redis.ping();
    const client = new OtherClient(redis, key);
    console.log('ready');
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const [action, ...numbers] = line.split(' ');
        console.log(await client[action](...numbers.map(Number)) ? 'yes' : 'no');
    }
    redis.disconnect();
}

main(...process.argv.slice(2));
