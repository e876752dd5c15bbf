// pg-boss: bulk insert, and its fetch and complete in a loop, which is its fastest documented way.

import { PgBoss } from "pg-boss";
import { gate, main, say, Seen, timed, versionOf } from "./common.mjs";

const QUEUE = "noop";
// The best of 1000 to 50,000, and of 250, 500, 1000, 2000 and 5000, where this was written.
const BULK = 5000;
const BATCH = 5000;

async function open(connectionString, options = {}) {
  const boss = new PgBoss({ connectionString, supervise: false, schedule: false, ...options });
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

const verbs = {
  version() {
    say("version", versionOf("pg-boss"));
  },

  async setup(connectionString) {
    await (await open(connectionString)).createQueue(QUEUE);
  },

  async bulk(connectionString, count) {
    const boss = await open(connectionString);
    await timed(async () => {
      for (let begin = 0; begin < count; begin += BULK) {
        const size = Math.min(BULK, count - begin);
        await boss.insert(QUEUE, Array.from({ length: size }, () => ({ data: {} })));
      }
    });
  },

  async single(connectionString, count) {
    const boss = await open(connectionString);
    await boss.send(QUEUE, {});
    await timed(async () => {
      for (let number = 0; number < count; number += 1) await boss.send(QUEUE, {});
    });
  },

  async loop(connectionString) {
    const boss = await open(connectionString);
    const seen = new Seen();
    await gate();
    seen.begin();
    for (;;) {
      const jobs = await boss.fetch(QUEUE, { batchSize: BATCH });
      if (!jobs.length) break;
      for (const _ of jobs) seen.call();
      await boss.complete(QUEUE, jobs.map((job) => job.id));
    }
  },
};

await main(verbs);
