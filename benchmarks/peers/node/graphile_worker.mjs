// graphile-worker with the settings of its performance page: local queue, batched completion.

import { makeWorkerUtils, run, runMigrations } from "graphile-worker";
import { gate, main, now, say, Seen, sleep, stamp, timed, versionOf } from "./common.mjs";

// LISTEN and fetching hold connections of their own beside the jobs.
const WORKER = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};
// The best of 1000, 2500, 5000, 10,000, 25,000 and 50,000 where this was written.
const BULK = 5_000;

const verbs = {
  version() {
    say("version", versionOf("graphile-worker"));
  },

  async setup(connectionString) {
    await runMigrations({ connectionString });
  },

  async bulk(connectionString, count) {
    const utils = await makeWorkerUtils({ connectionString });
    await timed(async () => {
      for (let begin = 0; begin < count; begin += BULK) {
        const size = Math.min(BULK, count - begin);
        await utils.addJobs(Array.from({ length: size }, () => ({ identifier: "noop", payload: {} })));
      }
    });
  },

  async single(connectionString, count) {
    const utils = await makeWorkerUtils({ connectionString });
    await utils.addJob("noop", {});
    await timed(async () => {
      for (let number = 0; number < count; number += 1) await utils.addJob("noop", {});
    });
  },

  async pace(connectionString, count, gap) {
    const utils = await makeWorkerUtils({ connectionString });
    for (let number = 0; number < count; number += 1) {
      await utils.addJob("stamp", { sent: now() });
      await sleep(gap);
    }
  },

  async work(connectionString) {
    const seen = new Seen();
    const taskList = {
      noop: async () => seen.call(),
      stamp: async (payload) => stamp(payload.sent),
    };
    await gate();
    const runner = await run({
      connectionString,
      taskList,
      noHandleSignals: true,
      preset: { worker: { ...WORKER, connectionString } },
    });
    await runner.promise;
  },
};

await main(verbs);
