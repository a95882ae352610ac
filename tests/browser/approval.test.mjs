// A person approves and rejects in the console, in a real browser, against `steward local`. The agent sends the request to a
// queue, as for a service that nobody runs here. `.ci/browser` runs these tests.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AxeBuilder } from '@axe-core/playwright';
import { StewardProcess, address, browser, steward } from './demo.mjs';

const PATIENCE = 60_000;

let local;
let chromium;
let root;
let work;
const pageErrors = [];

before(async () => {
  work = await mkdtemp(join(tmpdir(), 'steward-approval-'));
  await cp(fileURLToPath(new URL('approval.yaml', import.meta.url)), join(work, 'credit.yaml'));
  chromium = await browser();
  const args = ['local', '--workflows', work, '--agent', 'desk=sqs:asks', '--listen', '127.0.0.1:0'];
  local = new StewardProcess(args, { USER: 'ada' });
  root = address(await local.waitForLine(/^console /));
});

after(async () => {
  await chromium?.close();
  await local?.stop();
  await rm(work, { recursive: true, force: true });
});

/** Submits a task and waits on the page of awaited callbacks until it is there. */
async function awaited(id) {
  const file = join(work, `${id}.json`);
  await writeFile(file, JSON.stringify({ task_id: id, workflow: 'credit', input: { account: 'A-7' } }));
  await steward(['submit', file], { AWS_ENDPOINT_URL: new URL(root).origin, USER: 'ada' });
  const page = await (await chromium.newContext()).newPage();
  page.setDefaultTimeout(PATIENCE);
  page.on('pageerror', (error) => pageErrors.push(`${page.url()}: ${error}`));
  page.on('console', (message) => {
    if (message.type() === 'error') pageErrors.push(`${page.url()}: ${message.text()}`);
  });
  await page.goto(root);
  await page.getByRole('link', { name: 'Callbacks' }).first().click();
  // The list refreshes itself until it contains the task.
  const row = page.getByRole('row').filter({ hasText: id });
  await row.waitFor();
  await row.getByText('the owner of account A-7').waitFor();
  return { page, row };
}

async function assertAccessible(page) {
  const { violations } = await new AxeBuilder({ page }).analyze();
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  assert.deepEqual(serious.map(({ id }) => id), [], page.url());
}

const state = (page, name) => page.locator('.badge').first().filter({ hasText: name }).waitFor();

test('a person approves with the form of the declared schema, and is on the record', async () => {
  const { page, row } = await awaited('credit-1');
  await assertAccessible(page);
  await row.getByRole('link', { name: /^Approve/ }).click();
  const limit = page.getByLabel(/^Credit limit/);
  await limit.fill('900');
  await page.getByLabel(/^Reason/).fill('a good customer');
  await page.getByRole('button', { name: 'Approve' }).click();
  // The answer violates the schema: the form says so and keeps what was entered.
  await page.getByRole('alert').filter({ hasText: /limit/ }).waitFor();
  assert.equal(await limit.inputValue(), '900');
  await assertAccessible(page);
  await limit.fill('500');
  await page.getByLabel('Insured').selectOption('yes');
  await page.getByRole('button', { name: 'Approve' }).click();
  await state(page, 'Processed');
  await page.getByRole('cell', { name: 'a good customer' }).first().waitFor();
  await page.getByRole('cell', { name: /approve.* by ada/ }).first().waitFor();
  const task = await (await fetch(`${new URL(root).origin}/tasks/credit-1`)).json();
  assert.deepEqual(task.output, { limit: 500, insured: true });
});

test('a person rejects, and the task is undone with the reason', async () => {
  const { page, row } = await awaited('credit-2');
  await row.getByRole('link', { name: /^Reject/ }).click();
  assert.equal(await page.getByLabel(/^Credit limit/).count(), 0, 'a rejection has no answer');
  await page.getByLabel(/^Reason/).fill('over budget');
  await page.getByRole('button', { name: 'Reject' }).click();
  await state(page, 'Undone');
  await page.getByText('rejected by ada: over budget').first().waitFor();
});

test('an answered callback is no longer listed', async () => {
  const { page } = await awaited('credit-3');
  assert.equal(await page.getByText('credit-1').count(), 0);
  assert.equal(await page.getByText('credit-2').count(), 0);
});

test('no page had errors', () => {
  // Browsers also report the expected response 422 for the invalid answer.
  assert.deepEqual(pageErrors.filter((error) => !/status of 422/.test(error)), []);
});
