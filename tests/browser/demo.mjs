// What the browser tests stand on: `steward demo --chaos --stay`, the `steward` command, and a browser.

import { spawn, execFile } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

const STEWARD = process.env.STEWARD ?? 'target/debug/steward';
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** A `steward` that goes on until it is stopped; `lines` are those of its standard error and output. */
export class Running {
  constructor(args, env = {}) {
    this.child = spawn(STEWARD, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    this.lines = [];
    this.waiting = [];
    for (const stream of [this.child.stdout, this.child.stderr]) {
      createInterface({ input: stream }).on('line', (line) => {
        this.lines.push(line);
        this.waiting = this.waiting.filter((look) => !look());
      });
    }
    this.ended = once(this.child, 'exit');
  }

  /** The first line that matches; fails if the command ends without one. */
  async said(pattern) {
    const heard = new Promise((resolve) => {
      const look = () => {
        const line = this.lines.find((line) => pattern.test(line));
        if (line !== undefined) resolve(line);
        return line !== undefined;
      };
      if (!look()) this.waiting.push(look);
    });
    const ended = this.ended.then(() => {
      throw new Error(`ended before ${pattern}:\n${this.lines.join('\n')}`);
    });
    return Promise.race([heard, ended]);
  }

  async stop() {
    this.child.kill('SIGINT');
    await this.ended;
  }
}

/** Where a line says that the console is. */
export const address = (line) => line.replace('console ', '').trim();

/** Runs `steward` to its end; what it printed. */
export async function steward(args, env) {
  const { stdout } = await promisify(execFile)(STEWARD, args, { env: { ...process.env, ...env } });
  return stdout;
}

/** One request of AWS's JSON protocol, to an endpoint that does not look at signatures. */
export async function sqs(endpoint, operation, body) {
  const headers = { 'content-type': 'application/x-amz-json-1.0', 'x-amz-target': `AmazonSQS.${operation}` };
  const answer = await fetch(endpoint, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${operation}: ${answer.status} ${text}`);
  return JSON.parse(text || '{}');
}

export const browser = () => chromium.launch({
  executablePath: CHROMIUM,
  // A container's root has no sandbox of its own, and little shared memory.
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'],
});
