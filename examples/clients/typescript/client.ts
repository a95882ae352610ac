// Submits a task, answers its callback, and waits for its end, with types that are generated from the OpenAPI documents.
//
//     tsx client.ts URL PORT     URL: where `steward local` serves; PORT: where this program serves the agent's service
//
// A deployment wants signed requests: see ../README.md.
import assert from "node:assert";
import { once } from "node:events";
import { createServer } from "node:http";
import { json } from "node:stream/consumers";
import createClient from "openapi-fetch";
import type { paths as CallbackPaths } from "./callbacks.js";
import type { paths } from "./steward.js";

const [url, port] = process.argv.slice(2);
assert(url && port, "client.ts URL PORT");

// The service that asks: it keeps the question, and somebody answers later.
type Question = { question: string; answer_at: string };
const desk = createServer();
const asked = once(desk, "request").then(async ([request, response]) => {
  const question = (await json(request)) as Question;
  response.writeHead(202).end();
  return question;
});
desk.listen(Number(port), "127.0.0.1");

const steward = createClient<paths>({ baseUrl: url });
const body = { task_id: "typescript-1", workflow: "approval", input: { question: "A refund of 80?" } };
const accepted = await steward.POST("/tasks", { body });
assert(accepted.data, JSON.stringify(accepted.error));
console.log("submitted", body.task_id);

const { question, answer_at } = await asked;
const { origin, pathname } = new URL(answer_at);
const callbacks = createClient<CallbackPaths>({ baseUrl: origin });
const token = decodeURIComponent(pathname.replace("/callbacks/", ""));
const answered = await callbacks.POST("/callbacks/{token}", { params: { path: { token } }, body: { approved: true } });
assert(answered.data, JSON.stringify(answered.error));
console.log("answered:", question);

const params = { path: { id: body.task_id }, query: { wait: "20s" } };
const task = await steward.GET("/tasks/{id}", { params });
assert(task.data, JSON.stringify(task.error));
console.log(task.data.process_state, task.data.output);
const refused = await steward.POST("/tasks", { body: { task_id: "typescript-2", workflow: "none" } });
console.log(refused.error?.status, refused.error?.type);
desk.close();
