// An agent of Steward in JavaScript: sends greetings through an HTTP service.
//
// As a Lambda function it receives batches from its queue (`handler`). As a process it polls the queue itself:
//
//   node index.mjs
//
// The contract that it implements, with the rules R1 to R22, is docs/agent-contract.md.

import { pathToFileURL } from "node:url";
import { DeleteMessageCommand, ReceiveMessageCommand, SendMessageCommand, SQSClient } from "@aws-sdk/client-sqs";

const { QUEUE_URL, REPLY_QUEUE_URL, SERVICE_URL, AGENT_NAME } = process.env;
const OUTPUT_BYTES_MAX = 128 * 1024;
const GREETINGS = { en: "Hello", fr: "Bonjour", de: "Guten Tag" };

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
  const isKnown = ["do", "undo", undefined].includes(request.action);
  if (request.agent !== AGENT_NAME || !request.task_id || !isKnown) throw new TypeError("no request for this agent");
  const traceparent = messageAttributes.traceparent?.stringValue;
  // R17: an earlier delivery may have made a call and died.
  const redelivered = Number(attributes.ApproximateReceiveCount) > 1 || "redriven" in messageAttributes;
  const outcome = await attempt(request, traceparent, redelivered);
  console.log(`task ${request.task_id} step ${request.step} attempt ${request.attempt}: ${outcome?.status ?? "no reply"}`);
  if (!outcome) return;
  // R6: what identifies the attempt is returned unchanged; JSON leaves out what is undefined.
  const { task_id, step, action, attempt: number, incarnation } = request;
  const reply = { type: "reply", task_id, step, action, attempt: number, incarnation, agent: AGENT_NAME, outcome };
  const trace = traceparent && { traceparent: { DataType: "String", StringValue: traceparent } }; // R7
  await sqs.send(
    new SendMessageCommand({
      QueueUrl: REPLY_QUEUE_URL,
      MessageBody: JSON.stringify(reply),
      MessageAttributes: trace,
      // The queue is fair: replies of a tenant with much load do not delay those of others.
      MessageGroupId: request.tenant,
    }),
  );
}

/** The outcome of an attempt; undefined if the agent must stay silent. */
async function attempt(request, traceparent, redelivered) {
  // R18: this agent has no store in which it could claim a call.
  if (request.idempotent === false) return failed("this agent serves only idempotent steps", false);
  const left = Date.parse(request.complete_by) - Date.now();
  if (left <= 0) return redelivered ? undefined : deferred("the request arrived after complete-by", 0, true); // R11
  const person = request.body ?? {};
  const text = `${GREETINGS[person.language] ?? "Hello"}, ${person.name ?? "stranger"}!`;
  let response, output;
  try {
    response = await fetch(SERVICE_URL + request.path, {
      method: request.method,
      headers: {
        "content-type": "application/json",
        "idempotency-key": request.idempotency_key, // R9
        ...(traceparent && { traceparent }),
      },
      body: JSON.stringify({ ...person, text }),
      redirect: "manual",
      signal: AbortSignal.timeout(Math.min(left, request.call_within_ms ?? 100_000)),
    });
    output = await response.text();
  } catch (error) {
    if (error.cause?.code === "ECONNREFUSED") return deferred("no connection to the service", 5_000, redelivered);
    // R14: the call took too long, or the connection broke. R11: no reply after complete-by.
    if (Date.parse(request.complete_by) <= Date.now()) return undefined;
    return { status: "unknown", reason: "the service did not answer" };
  }
  if (!response.ok) return refused(response, redelivered || request.may_have_run === true);
  if (Buffer.byteLength(output) > OUTPUT_BYTES_MAX) return failed("the response is too large", true); // R13
  try {
    return { status: "completed", output: JSON.parse(output || "null"), may_continue: redelivered };
  } catch {
    return failed("the response is not JSON", true);
  }
}

/** The outcome for a status that is no success. */
function refused({ status, headers }, mayHaveRun) {
  const reason = `the service responded ${status}`;
  if (status === 429) return deferred(reason, 1000 * (Number(headers.get("retry-after")) || 10), mayHaveRun); // R15
  if (status < 400 || status >= 500 || [408, 409, 423].includes(status)) return { status: "unknown", reason }; // R14
  return failed(reason, mayHaveRun); // R16, R17
}

function failed(reason, may_have_run) {
  return { status: "failed", reason, may_have_run };
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
