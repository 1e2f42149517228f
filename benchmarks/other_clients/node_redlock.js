'use strict';

// Tasks that take turns by node-redlock on ioredis, with the options that it has by itself but for the
// number of tries, which has no limit.
//
// Arguments: the server's port, the key, the number of tasks, the length of a section in ms, the lease in
// ms. benchmarks/harness/other_client_crowd.hpp tells what is read and written.

const readline = require('readline');
const timers = require('timers/promises');

function load() {
    try {
        return { Redis: require('ioredis').Redis, Redlock: require('redlock').default };
    } catch (error) {
        if (error.code !== 'MODULE_NOT_FOUND') throw error;
        console.log('absent');
        process.exit();
    }
}
const { Redis, Redlock } = load();

const now = () => process.hrtime.bigint();

async function main(port, key, tasks, section, lease) {
    const redis = new Redis({ host: '127.0.0.1', port: Number(port) });
    const redlock = new Redlock([redis], { retryCount: -1 });
    const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    let stopped = false;

    async function turn() {
        const asked = now();
        const lock = await redlock.acquire([key], Number(lease));
        const entered = now();
        if (Number(section) > 0) await timers.setTimeout(Number(section));
        const left = now();
        await lock.release();
        return [asked, entered, left];
    }

    async function contend() {
        const passages = [];
        while (!stopped) passages.push(await turn());
        return passages;
    }

    const numbers = [...Array(Number(tasks)).keys()];
    console.log('ready');
    await Promise.all(numbers.map(turn));
    console.log('warm');
    await lines.next();
    const all = Promise.all(numbers.map(contend));
    await lines.next();
    stopped = true;
    (await all).forEach((passages, number) => {
        for (const passage of passages) console.log([number, ...passage].join(' '));
    });
    console.log('end');
    redis.disconnect();
    process.stdin.destroy();
}

main(...process.argv.slice(2));
