// node-redlock (npm), which speaks the same lines as serve.py.
//
//   node peer.js FOLDER HOST:PORT,… TTL NAME      FOLDER has the node_modules
"use strict";

const readline = require("node:readline");
const { createRequire } = require("node:module");

const [folder, masters, seconds, mine] = process.argv.slice(2);
const installed = createRequire(folder + "/");
const Redis = installed("ioredis");
const { default: Redlock } = installed("redlock");

const ttl = Number(seconds) * 1000;
const clients = masters.split(",").map((one) => {
  const at = one.lastIndexOf(":");
  const client = new Redis(Number(one.slice(at + 1)), one.slice(0, at));
  client.on("error", () => {});     // a master that refuses is part of the measurement
  return client;
});
const redlock = new Redlock(clients);
const once = new Redlock(clients, { retryCount: 0 });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => Number(process.hrtime.bigint()) / 1e9;     // the monotonic clock, as Python's
const cpu = () => { const used = process.cpuUsage(); return (used.user + used.system) / 1e6; };
const busy = (error) => error && error.name === "ExecutionError";

let ending = [];    // of leases that are held: what ends each
let lost = 0;

const verbs = {
  async cycles(times) {
    for (let i = 0; i < Math.floor(times / 4); i++) {
      const lock = await redlock.acquire([mine], ttl);
      await lock.release();
    }
    let taking = 0;
    const used = cpu(), began = now();
    for (let i = 0; i < times; i++) {
      const start = now();
      const lock = await redlock.acquire([mine], ttl);
      taking += now() - start;
      await lock.release();
    }
    return { seconds: now() - began, acquire: taking, cpu: cpu() - used };
  },

  async attempt(name) {
    const began = now();
    let lock = null, error = "";
    try {
      lock = await once.acquire([name], ttl);
    } catch (failure) {
      error = failure.name;
    }
    const took = now() - began;
    if (lock) {
      try {
        await lock.release();
      } catch (failure) {
        error = "release: " + failure.name;
      }
    }
    return { acquired: lock !== null, seconds: took, both: now() - began, error };
  },

  async throughput(workers, lasts) {
    const work = async (number, until) => {
      let count = 0;
      while (now() < until) {
        const lock = await redlock.acquire([`${mine}-${number}`], ttl);
        await lock.release();
        count++;
      }
      return count;
    };
    const all = Array.from({ length: workers }, (_, number) => number);
    await Promise.all(all.map((number) => work(number, now() + 0.01)));
    const used = cpu(), began = now();
    const counts = await Promise.all(all.map((number) => work(number, began + lasts)));
    return { pairs: counts.reduce((a, b) => a + b, 0), seconds: now() - began, cpu: cpu() - used };
  },

  async contend(name, contenders, section, pause, begin, end) {
    const holds = [];
    const work = async (number) => {
      await sleep(Math.max(0, begin - now()) * 1000);
      while (now() < end) {
        let lock;
        try {
          lock = await redlock.acquire([name], ttl);
        } catch (failure) {
          if (!busy(failure)) throw failure;
          continue;
        }
        const acquired = now();
        await sleep(section * 1000);
        holds.push([acquired, now(), number]);
        await lock.release();
        if (pause) await sleep(pause * 1000);
      }
    };
    await Promise.all(Array.from({ length: contenders }, (_, number) => work(number)));
    return { holds };
  },

  async hold(number) {
    const began = now();
    ending = [];
    lost = 0;
    for (let i = 0; i < number; i++) {
      let taken;
      const held = new Promise((done) => { taken = done; });
      let end;
      const over = new Promise((done) => { end = done; });
      const using = redlock.using([`${mine}-${i}`], ttl, async (signal) => {
        taken();
        await over;
        if (signal.aborted) lost++;
      }).catch(() => { lost++; taken(); });
      await held;
      ending.push(async () => { end(); await using; });
    }
    return { seconds: now() - began, threads: 0 };
  },

  async rest(lasts) {
    const used = cpu(), began = now();
    await sleep(lasts * 1000);
    return { seconds: now() - began, cpu: cpu() - used, lost };
  },

  async drop() {
    await Promise.all(ending.map((end) => end()));
    ending = [];
    return {};
  },
};

const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

(async () => {
  const lines = readline.createInterface({ input: process.stdin });
  lines.on("close", () => process.exit(0));     // whatever hangs
  await verbs.cycles(1);
  say({ ready: true });
  lines.on("line", async (line) => {
    const [verb, ...words] = line.split(" ").map((word) => (word !== "" && !isNaN(word) ? Number(word) : word));
    try {
      say(await verbs[verb](...words));
    } catch (failure) {
      say({ error: `${failure.name}: ${failure.message}`.slice(0, 200) });
    }
  });
})();
