'use strict';

// Tasks of one process that take turns: harness/other_client_crowd.hpp tells what is read and written.

const readline = require('readline');
const timers = require('timers/promises');

const now = () => process.hrtime.bigint();

/// The libraries, or the end with a word that they are absent.
exports.load = (...names) => {
    try {
        return names.map((name) => require(name));
    } catch (error) {
        if (error.code !== 'MODULE_NOT_FOUND') throw error;
        console.log('absent');
        process.exit();
    }
};

/// `acquire` waits for the lock and returns what gives it back. `close` ends the connections.
exports.run = async (tasks, section, acquire, close) => {
    const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    let stopped = false;

    async function turn() {
        const asked = now();
        const release = await acquire();
        const entered = now();
        if (Number(section) > 0) await timers.setTimeout(Number(section));
        const left = now();
        await release();
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
    close();
    process.stdin.destroy();
};
