// Helpers of the browser tests: a running `steward demo --chaos --stay`, the `steward` command, and a browser.

import { spawn, execFile } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

const STEWARD = process.env.STEWARD ?? 'target/debug/steward';
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';

/** A `steward` process that runs until it is stopped. `lines` are the lines of its standard output and error. */
export class StewardProcess {
  constructor(args, env = {}) {
    this.child = spawn(STEWARD, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    this.lines = [];
    this.waiting = [];
    for (const stream of [this.child.stdout, this.child.stderr]) {
      createInterface({ input: stream }).on('line', (line) => {
        this.lines.push(line);
        this.waiting = this.waiting.filter((check) => !check());
      });
    }
    this.ended = once(this.child, 'exit');
  }

  /** Waits for the first line that matches `pattern`. Fails if the process ends without one. */
  async waitForLine(pattern) {
    const matched = new Promise((resolve) => {
      const check = () => {
        const line = this.lines.find((line) => pattern.test(line));
        if (line !== undefined) resolve(line);
        return line !== undefined;
      };
      if (!check()) this.waiting.push(check);
    });
    const ended = this.ended.then(() => {
      throw new Error(`ended before ${pattern}:\n${this.lines.join('\n')}`);
    });
    return Promise.race([matched, ended]);
  }

  async stop() {
    this.child.kill('SIGINT');
    await this.ended;
  }
}

/** The console's URL in a line of the output. */
export const address = (line) => line.replace('console ', '').trim();

/** Runs `steward` to its end and returns its standard output. */
export async function steward(args, env) {
  const { stdout } = await promisify(execFile)(STEWARD, args, { env: { ...process.env, ...env } });
  return stdout;
}

/** Sends a request in the AWS JSON protocol to an endpoint that does not check signatures. */
export async function sqs(endpoint, operation, body) {
  const headers = { 'content-type': 'application/x-amz-json-1.0', 'x-amz-target': `AmazonSQS.${operation}` };
  const response = await fetch(endpoint, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await response.text();
  if (!response.ok) throw new Error(`${operation}: ${response.status} ${text}`);
  return JSON.parse(text || '{}');
}

export const browser = () => chromium.launch({
  executablePath: CHROMIUM,
  // In a container, root cannot use the sandbox, and there is little shared memory.
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'],
});
