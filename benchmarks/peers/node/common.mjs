// The verbs, the gate and the counting handler of peers/common.py, for programs on Node.

import { readFileSync } from "node:fs";

const STEP = 500;

export function versionOf(name) {
  const file = new URL(`node_modules/${name}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file)).version;
}

export function say(word, value = "") {
  process.stdout.write(`${word} ${value}\n`);
}

export function now() {
  return (performance.timeOrigin + performance.now()) / 1000;
}

export function gate() {
  say("ready");
  return new Promise((opened) => process.stdin.once("data", opened));
}

export class Seen {
  count = 0;

  begin() {
    say("first", now());
  }

  call() {
    this.count += 1;
    if (this.count === 1) say("first", now());
    else if (this.count % STEP === 0) say("seen", this.count);
  }
}

export function stamp(sent) {
  say("late", (now() - sent) * 1000);
}

export async function timed(work) {
  const began = performance.now();
  await work();
  say("seconds", (performance.now() - began) / 1000);
}

export function sleep(seconds) {
  return new Promise((done) => setTimeout(done, seconds * 1000));
}

export async function main(verbs) {
  const [verb, ...told] = process.argv.slice(2);
  await verbs[verb](...told.map((one) => (isNaN(one) ? one : Number(one))));
  process.exit(0);
}
