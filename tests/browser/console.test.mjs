// What an operator does in the console, in a real browser, against `steward demo --chaos`: sees that something is
// wrong, finds the task, reads why, mends it, and sees that it helped. `.ci/browser` runs this.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AxeBuilder } from '@axe-core/playwright';
import { Running, address, browser, sqs, steward } from './demo.mjs';

// Enough for more than twenty orders to end in Error.
const ORDERS = 1500;
const CARD = '4000-1234-5678-9010';
const SHOTS = process.env.SHOTS ?? 'target/console';
const PATIENCE = 60_000;

let demo;
let chromium;
let root;
let endpoint;
let work;
/** All that a page complained of: blocked by the policy, failed, thrown. */
const complaints = [];

before(async () => {
  await mkdir(SHOTS, { recursive: true });
  work = await mkdtemp(join(tmpdir(), 'steward-browser-'));
  chromium = await browser();
  demo = new Running(['demo', '--chaos', '--stay', '--tasks', String(ORDERS)], { USER: 'ada' });
  root = address(await demo.said(/^console /));
  endpoint = new URL(root).origin;
});

after(async () => {
  await chromium?.close();
  await demo?.stop();
  await rm(work, { recursive: true, force: true });
});

/** A page as an operator has it open. */
async function open(path = '', options = {}) {
  const context = await chromium.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.on('pageerror', (error) => complaints.push(`${page.url()}: ${error}`));
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(`${page.url()}: ${message.text()}`);
  });
  await page.goto(`${options.root ?? root}${path}`);
  return page;
}

/** A picture of a page for the documentation, light and dark; of a long page its beginning. */
async function shot(page, name) {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    const length = await page.evaluate(() => document.documentElement.scrollHeight);
    const clip = { x: 0, y: 0, width: 1280, height: Math.min(length, 1500) };
    await page.screenshot({ path: join(SHOTS, `${name}-${colorScheme}.png`), fullPage: true, clip });
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

/** No serious fault of accessibility, light and dark. */
async function isAccessible(page) {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    const { violations } = await new AxeBuilder({ page }).analyze();
    const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
    const said = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' | ')}`);
    assert.deepEqual(said, [], `${page.url()}, ${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

const deployment = () => ({ AWS_ENDPOINT_URL: endpoint, USER: 'ada' });

async function submitParcel(id) {
  const file = join(work, `${id}.json`);
  const input = { customer: 'Ada', card: { number: CARD, holder: 'Ada' }, amount: 12, carrier: 'couriers' };
  await writeFile(file, JSON.stringify({ task_id: id, workflow: 'parcel', input }));
  await steward(['submit', file], deployment());
}

const inError = (page) => page.locator('.badge').first().filter({ hasText: 'Error' }).waitFor();

test('while everything is being killed the overview says what is going on', async () => {
  const page = await open();
  await page.locator('figure.bars').first().waitFor();
  await page.getByRole('heading', { name: 'Breakers' }).waitFor();
});

test('all orders end, and those in Error are on the overview', async () => {
  await demo.said(/^audit passed/);
  await demo.said(/^until Ctrl-C/);
  const page = await open();
  await page.getByText(/needs? a look/).waitFor();
  assert.ok(await page.getByRole('link', { name: /^order-/ }).count() > 0);
  await isAccessible(page);
  await shot(page, 'overview');
  await page.setViewportSize({ width: 390, height: 844 });
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 390, `${width} pixels wide on a phone of 390`);
  await page.screenshot({ path: join(SHOTS, 'overview-phone.png') });
});

test('a task in Error is found, understood, resubmitted with a corrected input, and seen processed', async () => {
  const definition = fileURLToPath(new URL('parcel.yaml', import.meta.url));
  await steward(['workflow', 'publish', definition], deployment());
  await submitParcel('parcel-7');

  const page = await open('/tasks');
  await page.getByLabel('State').selectOption('Error');
  await page.getByLabel('Workflow').fill('parcel');
  await page.getByRole('button', { name: 'Show' }).click();
  // The list refreshes itself until the task is in it.
  await page.getByRole('link', { name: 'parcel-7' }).waitFor();
  await isAccessible(page);
  await shot(page, 'tasks');
  await page.getByRole('link', { name: 'parcel-7' }).click();
  await inError(page);
  await page.getByText(/404/).first().waitFor();
  assert.ok(await page.locator('svg[role=img]').count() > 0, 'a graph');
  assert.ok(!(await page.content()).includes(CARD), 'a masked value');
  await isAccessible(page);
  await shot(page, 'task');

  await page.getByRole('link', { name: /^Resubmit/ }).last().click();
  await page.getByText('Edit the input').click();
  const input = page.getByLabel(/^Input/);
  const before = await input.inputValue();
  assert.ok(before.includes('••••') && !before.includes(CARD), before);
  await page.getByLabel(/^Why/).fill('couriers are closed today');
  await input.fill(before.replace('couriers', 'pigeons'));
  await page.getByRole('button', { name: 'Resubmit' }).click();
  await page.getByRole('alert').filter({ hasText: /carrier/ }).waitFor();
  assert.ok((await input.inputValue()).includes('pigeons'), 'what was typed is kept');
  await isAccessible(page);
  await input.fill(before.replace('couriers', 'shipments'));
  await shot(page, 'resubmit');
  await page.getByRole('button', { name: 'Resubmit' }).click();

  // Nothing is clicked from here on: the page refreshes itself.
  await page.getByRole('status').filter({ hasText: 'Done' }).waitFor();
  await page.locator('.badge').first().filter({ hasText: 'Processed' }).waitFor();
  await page.getByRole('cell', { name: 'couriers are closed today' }).first().waitFor();
  assert.ok(!(await page.content()).includes(CARD), 'a masked value');
  await shot(page, 'task-mended');
});

test('a refresh keeps what is open, and where one is', async () => {
  const page = await open('/tasks/parcel-7');
  const details = page.locator('details').filter({ has: page.locator('pre') }).last();
  await details.locator('summary').click();
  await details.locator('summary').focus();
  const top = await page.evaluate(() => window.scrollY);
  const made = await page.locator('.made').textContent();
  await page.waitForFunction((made) => document.querySelector('.made').textContent !== made, made);
  assert.ok(await details.evaluate((details) => details.open), 'still open');
  assert.equal(await page.evaluate(() => document.activeElement.tagName), 'SUMMARY');
  assert.equal(await page.evaluate(() => window.scrollY), top);
});

test('twenty and more in Error are retried together, each with its result', async () => {
  const page = await open('/tasks?state=Error&workflow=order');
  await page.getByRole('link', { name: /^Act on all/ }).click();
  // The list shows its first page; this acts on all that match.
  await page.getByRole('button', { name: /^Send to/ }).waitFor();
  const matching = await page.locator('tbody tr').count();
  assert.ok(matching >= 20, `${matching} orders in Error`);
  await page.getByRole('radio', { name: /resubmit/ }).check();
  await page.getByLabel(/^Why/).fill('the services behave again');
  await isAccessible(page);
  await shot(page, 'bulk');
  await page.getByRole('button', { name: /^Send to/ }).click();
  await page.getByRole('status').filter({ hasText: `All ${matching} answered` }).waitFor();
  assert.equal(await page.getByText('✓ carried out').count(), matching);
  await isAccessible(page);
  await shot(page, 'bulk-result');
  await page.goto(`${root}/tasks?state=Error&workflow=order`);
  await page.getByText('No task matches').waitFor();
});

test('a dead letter is looked into and sent back', async () => {
  const queue = 'steward-scheduler-dead-letters';
  const { QueueUrl } = await sqs(endpoint, 'GetQueueUrl', { QueueName: queue });
  const wake = JSON.stringify({ type: 'wake', task_id: 'parcel-7', cause: 'recovery' });
  await sqs(endpoint, 'SendMessage', { QueueUrl, MessageBody: wake });

  const page = await open('/dead-letters');
  await isAccessible(page);
  await shot(page, 'dead-letters');
  await page.getByRole('link', { name: queue }).click();
  await page.getByRole('heading', { name: 'Send back' }).waitFor();
  await isAccessible(page);
  await shot(page, 'dead-letter');
  await page.getByLabel(/^Why/).fill('the scheduler is mended');
  await page.getByRole('button', { name: 'Send back' }).click();
  await page.getByRole('status').filter({ hasText: '1 sent back' }).waitFor();
  await page.goto(`${root}/dead-letters`);
  await page.getByText('No dead letters').waitFor();
});

test('workflows, their versions, and what changed between them', async () => {
  const page = await open('/workflows');
  await isAccessible(page);
  await shot(page, 'workflows');
  await page.getByRole('link', { name: 'order', exact: true }).first().click();
  await page.locator('svg[role=img]').first().waitFor();
  await isAccessible(page);
  await shot(page, 'workflow');
});

test('a reader sees no buttons, and is refused who posts', async () => {
  await submitParcel('parcel-8');
  const reading = new Running(['console', '--read-only', '--listen', '127.0.0.1:0'], deployment());
  try {
    const reader = address(await reading.said(/^console /));
    const page = await open('/tasks/parcel-8', { root: reader });
    await page.reload();
    await inError(page);
    for (const path of ['/tasks/parcel-8', '', '/tasks?state=Error', '/dead-letters', '/workflows']) {
      await page.goto(`${reader}${path}`);
      await page.getByText('reading only').waitFor();
      assert.equal(await page.locator('main form[method=post]').count(), 0, path);
      assert.equal(await page.locator('main a.button').filter({ hasText: '…' }).count(), 0, path);
    }
    const status = await page.evaluate(async (address) => {
      const body = new URLSearchParams({ reason: 'because' });
      return (await fetch(address, { method: 'POST', body, redirect: 'manual' })).status;
    }, `${new URL(reader).pathname}/tasks/parcel-8/undo`);
    assert.equal(status, 403);
  } finally {
    await reading.stop();
  }
});

test('everything works without JavaScript', async () => {
  const page = await open('/tasks/parcel-8', { javaScriptEnabled: false });
  await inError(page);
  await page.getByRole('link', { name: /^Undo/ }).click();
  await page.getByLabel(/^Why/).fill('nobody is at home');
  await page.getByRole('button', { name: /^Undo/ }).click();
  const undone = page.locator('.badge').first().filter({ hasText: 'Undone' });
  const until = Date.now() + PATIENCE;
  while (!(await undone.isVisible()) && Date.now() < until) await page.reload();
  await page.getByRole('cell', { name: 'nobody is at home' }).first().waitFor();
});

test('the keyboard is enough', async () => {
  const page = await open();
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to content');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
});

test('no page asked for anything from elsewhere, and none failed', () => {
  // A browser also complains of the answers that were asked for: the reader's 403, the wrong input's 422.
  assert.deepEqual(complaints.filter((said) => !/status of (403|422)/.test(said)), []);
});
