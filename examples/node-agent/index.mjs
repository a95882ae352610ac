// An agent of Steward in JavaScript: sends greetings through an HTTP service.
//
// As a Lambda function it receives batches from its queue (`handler`). As a process it polls the queue itself:
//
//   node index.mjs
//
// The contract that it implements, with the rules R1 to R24, is docs/agent-contract.md. It ignores `responses` of a
// request, and calls once for each delivery: the retries are the attempts of the scheduler.

import { pathToFileURL } from "node:url";
import { DeleteMessageCommand, ReceiveMessageCommand, SendMessageCommand, SQSClient } from "@aws-sdk/client-sqs";

const { QUEUE_URL, REPLY_QUEUE_URL, SERVICE_URL, AGENT_NAME } = process.env;
const OUTPUT_BYTES_MAX = 128 * 1024;
const DETAIL_BYTES_MAX = 4 * 1024;
const CALL_WITHIN_MS_MAX = 100_000;
const WAIT_MS_MAX = 366 * 24 * 3_600_000; // No task lives longer.
const GREETINGS = new Map([["en", "Hello"], ["fr", "Bonjour"], ["de", "Guten Tag"]]);

// The fields of a request that this agent reads, and their types.
const REQUIRED = {
  task_id: "string", step: "string", attempt: "integer", complete_by: "string", idempotency_key: "string",
  agent: "string", method: "string", path: "string", incarnation: "integer", call_within_ms: "integer",
};
const OPTIONAL = { idempotent: "boolean", may_have_run: "boolean", tenant: "string" };

// R11: in place of an outcome, a call whose outcome was not known by complete-by.
const OVERDUE = { status: "overdue" };

// Errors of a call that was certainly not made.
const NOT_CONNECTED = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"];

const sqs = new SQSClient({});

/** Handles a batch, and reports the messages that SQS must deliver again. */
export async function handler({ Records }) {
  const results = await Promise.allSettled(Records.map(handle));
  const batchItemFailures = results.flatMap((result, n) => {
    if (result.status === "fulfilled") return [];
    // R19: the text of the error may contain payload, its name does not. R3: the others are handled.
    console.error(`message ${Records[n].messageId} failed: ${result.reason?.name}`);
    return [{ itemIdentifier: Records[n].messageId }];
  });
  return { batchItemFailures };
}

/** Carries out a request, and sends the reply. If it throws, the message stays in the queue (R2, R3). */
async function handle({ body, attributes, messageAttributes }) {
  const request = JSON.parse(body);
  if (!isReadable(request)) throw new TypeError("no request for this agent");
  const traceparent = messageAttributes.traceparent?.stringValue;
  const earlier = "redriven" in messageAttributes ? 2 : Number(attributes.ApproximateReceiveCount) - 1;
  const outcome = await attempt(request, traceparent, earlier);
  console.log(`task ${request.task_id} step ${request.step} attempt ${request.attempt}: ${outcome?.status ?? "no reply"}`);
  if (!outcome) return;
  // R6: what identifies the attempt is returned unchanged; JSON leaves out what is undefined.
  const { task_id, step, action, attempt: number, incarnation } = request;
  const call = { step, action, attempt: number, incarnation, agent: AGENT_NAME };
  const isOverdue = outcome === OVERDUE; // R11
  const message = isOverdue ? { type: "wake", task_id, cause: "overdue", call } : { type: "reply", task_id, ...call, outcome };
  const trace = traceparent && { traceparent: { DataType: "String", StringValue: traceparent } }; // R7
  await sqs.send(
    new SendMessageCommand({
      QueueUrl: REPLY_QUEUE_URL,
      // SQS refuses these two characters unless they are escaped.
      MessageBody: JSON.stringify(message).replaceAll("\ufffe", "\\ufffe").replaceAll("\uffff", "\\uffff"),
      MessageAttributes: trace,
      // The queue is fair: replies of a tenant with much load do not delay those of others.
      MessageGroupId: request.tenant || undefined,
    }),
  );
}

/** R3: whether the request has all fields that this agent needs, with the right types, and is for this agent. */
function isReadable(request) {
  const is = (type, value) => (type === "integer" ? Number.isInteger(value) : typeof value === type);
  return (
    Object.entries(REQUIRED).every(([name, type]) => is(type, request[name])) &&
    Object.entries(OPTIONAL).every(([name, type]) => request[name] == null || is(type, request[name])) &&
    request.agent === AGENT_NAME &&
    ["do", "undo", undefined].includes(request.action) &&
    ["GET", "POST", "PUT", "PATCH", "DELETE"].includes(request.method) &&
    !Number.isNaN(Date.parse(request.complete_by))
  );
}

/** The outcome of an attempt that was delivered this often before; undefined if the agent must stay silent. */
async function attempt(request, traceparent, earlier) {
  const { complete_by, idempotent = true, call_within_ms, may_have_run } = request;
  const calls = idempotent === true; // For other steps, this agent never calls.
  // R17: how many other deliveries may have made a call and died: earlier ones, and one of another message.
  const others = calls ? earlier + (may_have_run === true) : 0;
  const left = Date.parse(complete_by) - Date.now();
  if (left <= 0) {
    // R11
    if (earlier > 0) return others > 1 ? OVERDUE : undefined;
    return deferred("the request arrived after complete-by", 0, calls);
  }
  const refusal = reasonToRefuse(request);
  if (refusal) return afterOthers(failed(refusal, false), others);
  const timeout = Math.min(left, call_within_ms, CALL_WITHIN_MS_MAX);
  const outcome = await call(request, traceparent, earlier > 0, timeout);
  return Date.parse(complete_by) > Date.now() ? afterOthers(outcome, others) : OVERDUE; // R11
}

/** R16, R17: a failure is certain only for the delivery that got it; so many others may have called. */
function afterOthers(outcome, others) {
  if (outcome.status !== "failed" || others === 0) return outcome;
  const { reason, detail } = outcome;
  return others > 1 ? { status: "unknown", reason, detail } : { ...outcome, may_have_run: true };
}

/** Why this agent does not call for a request; undefined if it does. */
function reasonToRefuse({ idempotent = true, auth, output, path }) {
  // R18: this agent has no store in which it could claim a call.
  if (idempotent !== true) return "this agent serves only idempotent steps";
  if (auth != null) return "this agent cannot sign calls";
  if (output != null) return "this agent does not implement `output`";
  if (!path.startsWith("/")) return "the path does not start with /";
}

/** The outcome of one call. R14: it takes at most `timeout` milliseconds, with the response's body. */
async function call(request, traceparent, redelivered, timeout) {
  let response, answer;
  try {
    response = await fetch(SERVICE_URL + request.path, {
      method: request.method,
      headers: {
        "content-type": "application/json",
        "idempotency-key": request.idempotency_key, // R9
        ...(traceparent && { traceparent }),
      },
      // `fetch` sends no body with GET.
      body: request.method === "GET" ? undefined : JSON.stringify(greeting(request.body ?? {})),
      redirect: "manual",
      signal: AbortSignal.timeout(timeout),
    });
    answer = await firstBytes(response);
  } catch (error) {
    if (NOT_CONNECTED.includes(error.cause?.code)) return deferred("no connection to the service", 5_000, redelivered);
    return { status: "unknown", reason: "the service did not answer" };
  }
  return outcomeOf(request, response, answer, redelivered);
}

/** The body of the call: that of the request, with a greeting if it is an object. */
function greeting(person) {
  if (typeof person !== "object" || Array.isArray(person)) return person;
  return { ...person, text: `${GREETINGS.get(person.language) ?? "Hello"}, ${person.name ?? "stranger"}!` };
}

/** The body of a response, up to the first bytes over the limit of an output. */
async function firstBytes({ body }) {
  let bytes = Buffer.alloc(0);
  for await (const chunk of body ?? []) {
    bytes = Buffer.concat([bytes, chunk]);
    if (bytes.length > OUTPUT_BYTES_MAX) break;
  }
  return bytes;
}

/** The outcome that a response stands for. What the service says in an error is for operators only (R22). */
function outcomeOf(request, response, answer, redelivered) {
  if (response.ok) return completed(answer, redelivered);
  const detail = new TextDecoder().decode(answer.subarray(0, DETAIL_BYTES_MAX)) || undefined;
  return { ...outcomeOfError(request, response, redelivered), detail };
}

/** The outcome that the status of an error stands for, by the contract's table of responses. */
function outcomeOfError({ may_have_run, action }, { status, headers }, redelivered) {
  const reason = `the service responded ${status}`;
  const wait = retryAfterMs(headers);
  if (status === 425 || status === 429) return deferred(reason, wait ?? 10_000, redelivered); // R15
  // An earlier call with the same key may still be in progress.
  const isRepeated = redelivered || may_have_run === true || action === "undo";
  const isConflict = status === 409 || status === 423;
  if (status === 408 || status >= 500 || (isConflict && isRepeated)) {
    return wait === undefined ? { status: "unknown", reason } : { ...deferred(reason, wait, true), call_in_doubt: true }; // R14
  }
  const isRefusal = status >= 400 && !isConflict;
  return failed(reason, !isRefusal); // R16
}

/** The outcome of a successful call, if its output obeys the contract's limits. */
function completed(answer, redelivered) {
  if (answer.length > OUTPUT_BYTES_MAX) return failed("the response is too large", true); // R13
  const output = outputOf(answer);
  if (Buffer.byteLength(JSON.stringify(output)) > OUTPUT_BYTES_MAX) return failed("the response is too large", true);
  return { status: "completed", output, may_continue: redelivered };
}

/** The call succeeded, whatever the service says: JSON, other text, or other bytes. */
function outputOf(answer) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(answer);
  } catch {
    return { not_text: answer.length };
  }
  try {
    const output = text.trim() === "" ? null : JSON.parse(text);
    return fits(output) ? output : { text };
  } catch {
    return { text };
  }
}

/** Whether a value has at most 32 levels, no integer that JavaScript rounds, and only valid Unicode. */
function fits(value, levels = 32) {
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value === "number") return Number.isInteger(value) ? Number.isSafeInteger(value) : Number.isFinite(value);
  if (typeof value !== "object" || value === null) return true;
  return levels > 0 && Object.entries(value).flat().every((inner) => fits(inner, levels - 1));
}

/** A `Retry-After`, which is a number of seconds or a date; undefined if it is neither. */
function retryAfterMs(headers) {
  const text = headers.get("retry-after") ?? "";
  const wait = /^\d+$/.test(text) ? 1000 * Number(text) : Date.parse(text) - Date.now();
  return Number.isNaN(wait) ? undefined : Math.min(Math.max(wait, 0), WAIT_MS_MAX);
}

function failed(reason, may_have_run) {
  return { status: "failed", reason, may_have_run, call_in_doubt: may_have_run };
}

function deferred(reason, retry_after_ms, may_have_run) {
  return { status: "deferred", reason, retry_after_ms, may_have_run };
}

/** Does the work of Lambda: receives batches, and deletes what was handled (R2). */
async function poll() {
  console.log("polling");
  for (;;) {
    const { Messages = [] } = await sqs.send(
      new ReceiveMessageCommand({
        QueueUrl: QUEUE_URL, MaxNumberOfMessages: 10, WaitTimeSeconds: 20,
        MessageAttributeNames: ["All"], MessageSystemAttributeNames: ["ApproximateReceiveCount"],
      }),
    );
    const Records = Messages.map(({ MessageId, Body, Attributes, MessageAttributes = {} }) => ({
      messageId: MessageId,
      body: Body,
      attributes: Attributes,
      messageAttributes: Object.fromEntries(
        Object.entries(MessageAttributes).map(([name, { StringValue }]) => [name, { stringValue: StringValue }]),
      ),
    }));
    const failures = new Set((await handler({ Records })).batchItemFailures.map((failure) => failure.itemIdentifier));
    const handled = Messages.filter(({ MessageId }) => !failures.has(MessageId));
    await Promise.all(
      handled.map(({ ReceiptHandle }) => sqs.send(new DeleteMessageCommand({ QueueUrl: QUEUE_URL, ReceiptHandle }))),
    );
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await poll();
