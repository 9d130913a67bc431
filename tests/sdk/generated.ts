// Uses the types that were generated from the description: node generated.js URL

import createClient from "openapi-fetch";

import type { components, paths } from "./described";

type Message = components["schemas"]["ChatMessage"];

const client = createClient<paths>({ baseUrl: process.argv[2] });
const messages: Message[] = [{ role: "user", content: "What is 6 * 7?" }];

async function use(): Promise<void> {
  const chat = await client.POST("/v1/chat/completions", { body: { model: "demo", messages } });
  const session = await client.POST("/v1/sessions", { body: {} });
  const agent = await client.POST("/v1/agent/completions", {
    body: {
      model: "demo",
      messages,
      tool_choice: "auto",
      stop: ["never"],
      agent: { session_id: session.data?.id, on_conflict: "reject" },
    },
  });
  const id = agent.data && "choices" in agent.data ? agent.data.agent.run_id : "";
  const events = await client.GET("/v1/runs/{id}/events", {
    params: { path: { id }, query: { stream: false } },
  });
  const list = events.data as components["schemas"]["List_EventEntry"];
  const first = list.data[0];
  const refused = await client.GET("/v1/runs/{id}", { params: { path: { id: "run_0" } } });
  console.log(
    JSON.stringify({
      contents: [chat, agent].map(({ data }) => data && "choices" in data && data.choices[0]?.message.content),
      first: first && "type" in first && first.type === "run.started" && first.run_id === id,
      refused: refused.error?.error.code,
    }),
  );
}

void use();

// What a request cannot be does not compile.
// @ts-expect-error: a message has a role
export const roleless: Message = { content: "x" };
// @ts-expect-error: there is no such role
export const robot: Message = { role: "robot", content: "x" };
// @ts-expect-error: a request's messages are a list
export const talk: components["schemas"]["CompletionRequest"] = { messages: "x" };
