// An operator's work in the console, in a real browser, against `steward demo --chaos`: notice a problem, find the task,
// read the error, fix it, and check the result. `.ci/browser` runs these tests.

import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AxeBuilder } from '@axe-core/playwright';
import { StewardProcess, address, browser, sqs, steward } from './demo.mjs';

// Enough orders that more than twenty end in Error.
const ORDERS = 1500;
const CARD = '4000-1234-5678-9010';
const SHOTS = process.env.SHOTS ?? 'target/console';
const PATIENCE = 60_000;

let demo;
let chromium;
let root;
let endpoint;
let work;
/** Errors of pages: violations of the security policy, failed requests, exceptions. */
const pageErrors = [];

before(async () => {
  await mkdir(SHOTS, { recursive: true });
  work = await mkdtemp(join(tmpdir(), 'steward-browser-'));
  chromium = await browser();
  demo = new StewardProcess(['demo', '--chaos', '--stay', '--tasks', String(ORDERS)], { USER: 'ada' });
  root = address(await demo.waitForLine(/^console /));
  endpoint = new URL(root).origin;
});

after(async () => {
  await chromium?.close();
  await demo?.stop();
  await rm(work, { recursive: true, force: true });
});

/** Opens a page and records its errors. */
async function open(path = '', options = {}) {
  const context = await chromium.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.on('pageerror', (error) => pageErrors.push(`${page.url()}: ${error}`));
  page.on('console', (message) => {
    if (message.type() === 'error') pageErrors.push(`${page.url()}: ${message.text()}`);
  });
  await page.goto(`${options.root ?? root}${path}`);
  return page;
}

/** Makes screenshots of a page for the documentation, light and dark. Long pages are cut. */
async function takeScreenshots(page, name) {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    const length = await page.evaluate(() => document.documentElement.scrollHeight);
    const clip = { x: 0, y: 0, width: 1280, height: Math.min(length, 1500) };
    await page.screenshot({ path: join(SHOTS, `${name}-${colorScheme}.png`), fullPage: true, clip });
  }
  await page.emulateMedia({ colorScheme: 'light' });
}

/** Fails on serious accessibility problems, light and dark. */
async function assertAccessible(page) {
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    const { violations } = await new AxeBuilder({ page }).analyze();
    const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
    const problems = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' | ')}`);
    assert.deepEqual(problems, [], `${page.url()}, ${colorScheme}`);
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

test('the overview is available while the demo injects faults', async () => {
  const page = await open();
  await page.locator('figure.bars').first().waitFor();
  await page.getByRole('heading', { name: 'Circuit breakers' }).waitFor();
});

test('all orders end, and the overview shows those in Error', async () => {
  await demo.waitForLine(/^audit passed/);
  await demo.waitForLine(/^running until Ctrl-C/);
  const page = await open();
  await page.getByText(/[0-9]+ problems?:/).waitFor();
  assert.ok(await page.getByRole('link', { name: /^order-/ }).count() > 0);
  await assertAccessible(page);
  await takeScreenshots(page, 'overview');
  await page.setViewportSize({ width: 390, height: 844 });
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 390, `${width} pixels wide on a phone of 390`);
  await page.screenshot({ path: join(SHOTS, 'overview-phone.png') });
});

test('a task in Error is found, resubmitted with a corrected input, and then processed', async () => {
  const definition = fileURLToPath(new URL('parcel.yaml', import.meta.url));
  await steward(['workflow', 'publish', definition], deployment());
  await submitParcel('parcel-7');

  const page = await open('/tasks');
  await page.getByLabel('State').selectOption('Error');
  await page.getByLabel('Workflow').fill('parcel');
  await page.getByRole('button', { name: 'Apply filter' }).click();
  // The list refreshes itself until it contains the task.
  await page.getByRole('link', { name: 'parcel-7' }).waitFor();
  await assertAccessible(page);
  await takeScreenshots(page, 'tasks');
  await page.getByRole('link', { name: 'parcel-7' }).click();
  await inError(page);
  await page.getByText(/404/).first().waitFor();
  assert.ok(await page.locator('svg[role=img]').count() > 0, 'a graph');
  assert.ok(!(await page.content()).includes(CARD), 'a masked value is shown');
  await assertAccessible(page);
  await takeScreenshots(page, 'task');

  await page.getByRole('link', { name: /^Resubmit/ }).last().click();
  await page.getByText('Edit the input').click();
  const input = page.getByLabel(/^Input/);
  const before = await input.inputValue();
  assert.ok(before.includes('••••') && !before.includes(CARD), before);
  await page.getByLabel(/^Reason/).fill('couriers are closed today');
  await input.fill(before.replace('couriers', 'pigeons'));
  await page.getByRole('button', { name: 'Resubmit' }).click();
  await page.getByRole('alert').filter({ hasText: /carrier/ }).waitFor();
  assert.ok((await input.inputValue()).includes('pigeons'), 'the entered input is kept');
  await assertAccessible(page);
  await input.fill(before.replace('couriers', 'shipments'));
  await takeScreenshots(page, 'resubmit');
  await page.getByRole('button', { name: 'Resubmit' }).click();

  // Without further clicks, the page refreshes itself.
  await page.getByRole('status').filter({ hasText: 'Done' }).waitFor();
  await page.locator('.badge').first().filter({ hasText: 'Processed' }).waitFor();
  await page.getByRole('cell', { name: 'couriers are closed today' }).first().waitFor();
  assert.ok(!(await page.content()).includes(CARD), 'a masked value is shown');
  await takeScreenshots(page, 'task-mended');
});

test('a refresh keeps open sections, the focus and the scroll position', async () => {
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

test('more than twenty tasks in Error are resubmitted together, each with a result', async () => {
  const page = await open('/tasks?state=Error&workflow=order');
  await page.getByRole('link', { name: /^Act on all/ }).click();
  // The list shows one page; the bulk form has all matching tasks.
  await page.getByRole('button', { name: /^Send to/ }).waitFor();
  const matching = await page.locator('tbody tr').count();
  assert.ok(matching >= 20, `${matching} orders in Error`);
  await page.getByRole('radio', { name: /^resubmit/ }).check();
  await page.getByLabel(/^Reason/).fill('the services are healthy again');
  await assertAccessible(page);
  await takeScreenshots(page, 'bulk');
  await page.getByRole('button', { name: /^Send to/ }).click();
  await page.getByRole('status').filter({ hasText: `All ${matching} commands processed` }).waitFor();
  assert.equal(await page.getByText('✓ carried out').count(), matching);
  await assertAccessible(page);
  await takeScreenshots(page, 'bulk-result');
  await page.goto(`${root}/tasks?state=Error&workflow=order`);
  await page.getByText('No task matches').waitFor();
});

test('a dead letter is viewed and sent back', async () => {
  const queue = 'steward-scheduler-dead-letters';
  const { QueueUrl } = await sqs(endpoint, 'GetQueueUrl', { QueueName: queue });
  const wake = JSON.stringify({ type: 'wake', task_id: 'parcel-7', cause: 'recovery' });
  await sqs(endpoint, 'SendMessage', { QueueUrl, MessageBody: wake });

  const page = await open('/dead-letters');
  await assertAccessible(page);
  await takeScreenshots(page, 'dead-letters');
  await page.getByRole('link', { name: queue }).click();
  await page.getByRole('heading', { name: 'Send back' }).waitFor();
  await assertAccessible(page);
  await takeScreenshots(page, 'dead-letter');
  await page.getByLabel(/^Reason/).fill('the scheduler is fixed');
  await page.getByRole('button', { name: 'Send back' }).click();
  await page.getByRole('status').filter({ hasText: '1 sent back' }).waitFor();
  await page.goto(`${root}/dead-letters`);
  await page.getByText('No dead letters').waitFor();
});

test('workflows have versions and a graph', async () => {
  const page = await open('/workflows');
  await assertAccessible(page);
  await takeScreenshots(page, 'workflows');
  await page.getByRole('link', { name: 'order', exact: true }).first().click();
  await page.locator('svg[role=img]').first().waitFor();
  await assertAccessible(page);
  await takeScreenshots(page, 'workflow');
});

test('a read-only caller sees no buttons and cannot post', async () => {
  await submitParcel('parcel-8');
  const readOnly = new StewardProcess(['console', '--read-only', '--listen', '127.0.0.1:0'], deployment());
  try {
    const reader = address(await readOnly.waitForLine(/^console /));
    const page = await open('/tasks/parcel-8', { root: reader });
    await page.reload();
    await inError(page);
    for (const path of ['/tasks/parcel-8', '', '/tasks?state=Error', '/dead-letters', '/workflows']) {
      await page.goto(`${reader}${path}`);
      await page.getByText('read-only access').waitFor();
      assert.equal(await page.locator('main form[method=post]').count(), 0, path);
      assert.equal(await page.locator('main a.button').filter({ hasText: '…' }).count(), 0, path);
    }
    const status = await page.evaluate(async (address) => {
      const body = new URLSearchParams({ reason: 'because' });
      return (await fetch(address, { method: 'POST', body, redirect: 'manual' })).status;
    }, `${new URL(reader).pathname}/tasks/parcel-8/undo`);
    assert.equal(status, 403);
  } finally {
    await readOnly.stop();
  }
});

test('everything works without JavaScript', async () => {
  const page = await open('/tasks/parcel-8', { javaScriptEnabled: false });
  await inError(page);
  await page.getByRole('link', { name: /^Undo/ }).click();
  await page.getByLabel(/^Reason/).fill('the customer cancelled');
  await page.getByRole('button', { name: /^Undo/ }).click();
  const undone = page.locator('.badge').first().filter({ hasText: 'Undone' });
  const until = Date.now() + PATIENCE;
  while (!(await undone.isVisible()) && Date.now() < until) await page.reload();
  await page.getByRole('cell', { name: 'the customer cancelled' }).first().waitFor();
});

test('the skip link works with the keyboard', async () => {
  const page = await open();
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to content');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
});

test('no page requested other origins or had errors', () => {
  // Browsers also report the expected responses: 403 for the read-only caller, 422 for the invalid input.
  assert.deepEqual(pageErrors.filter((error) => !/status of (403|422)/.test(error)), []);
});
