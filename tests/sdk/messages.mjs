// The official Anthropic client for Node, used as its users use it.
//
// Usage: messages.mjs CASE BASE_URL, with the client under LOOPGATE_TEST_NODE_MODULES. Prints one line of JSON, what a
// user would see; messages.py prints the same.
//
// Checks of `@anthropic-ai/sdk` for Node:
//   text: plain, streamed, thinking
//   server tool: streamed
//   client tool: client_tool
//   approval: approval
//   structured output: structured
//   failure: unknown_model, provider_failure, broken_stream
//   limit: limited
//   cancel: left
//   resume: repeated
//   background: none: the API has none

import { createRequire } from 'node:module';

const require = createRequire(`${process.env.LOOPGATE_TEST_NODE_MODULES}/`);
const { Anthropic, APIError } = require('@anthropic-ai/sdk');
const { zodOutputFormat } = require('@anthropic-ai/sdk/helpers/zod');
const { z } = require('zod');

let attempts = 0;
const client = new Anthropic({
  baseURL: process.argv[3],
  apiKey: 'sk-test',
  fetch: (url, init) => {
    attempts += 1;
    return fetch(url, init);
  },
});
const weather = {
  name: 'get_weather',
  description: 'Tells the weather.',
  input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};
const asked = { model: 'test', max_tokens: 1000, messages: [{ role: 'user', content: 'Hi' }] };
const create = (options) => client.messages.create({ ...asked, ...options });
const text = (message) =>
  message.content
    .filter((block) => block.type === 'text')
    .map((block) => block.text)
    .join('');
const seen = (message) => ({
  text: text(message),
  stop_reason: message.stop_reason,
  blocks: message.content.map((block) => block.type),
  tokens: [message.usage.input_tokens, message.usage.output_tokens],
});

const failure = async (call) => {
  try {
    await call();
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    const told = error.error.error;
    return { status: error.status ?? 200, type: told.type, code: told.code, attempts };
  }
  throw new Error('no error was raised');
};

const cases = {
  plain: async () => {
    const message = await create({ system: 'Be short.', metadata: { user_id: 'u-1' }, stop_sequences: ['END'] });
    return { ...seen(message), has_request_id: Boolean(message._request_id) };
  },
  streamed: async () => {
    let said = '';
    const stream = client.messages.stream(asked).on('text', (piece) => {
      said += piece;
    });
    const final = await stream.finalMessage();
    return { ...seen(final), same: said === text(final) };
  },
  thinking: async () => seen(await create({ thinking: { type: 'enabled', budget_tokens: 2000 }, max_tokens: 4000 })),
  client_tool: async () => {
    const messages = [...asked.messages];
    const called = [];
    for (;;) {
      const message = await client.messages.stream({ ...asked, messages, tools: [weather] }).finalMessage();
      if (message.stop_reason !== 'tool_use') return { ...seen(message), called };
      // The content goes back as it came.
      messages.push({ role: 'assistant', content: message.content });
      const calls = message.content.filter((block) => block.type === 'tool_use');
      called.push(...calls.map((block) => [block.name, block.input]));
      const results = calls.map((block) => ({ type: 'tool_result', tool_use_id: block.id, content: 'rain' }));
      messages.push({ role: 'user', content: results });
    }
  },
  // The turn pauses, and goes on once the call is approved, as any turn that pauses goes on.
  approval: async () => {
    const agent = { policy: { ask: ['calculator'] } };
    const first = await create({ agent });
    const waits = first.agent.required_action.calls;
    const approvals = waits.map(({ call_id }) => ({ call_id, decision: 'approve' }));
    await client.post(`/v1/runs/${first.agent.run_id}/approvals`, { body: { approvals } });
    const messages = [...asked.messages, { role: 'assistant', content: first.content }];
    const told = seen(await create({ agent, messages }));
    return { paused: first.stop_reason, asked: waits.map((call) => call.name), ...told };
  },
  structured: async () => {
    const format = zodOutputFormat(z.object({ n: z.number().int() }));
    return { n: (await client.messages.parse({ ...asked, output_config: { format } })).parsed_output.n };
  },
  limited: async () => seen(await create({ agent: { limits: { max_iterations: 1 } } })),
  unknown_model: () => failure(() => create({ model: 'nonsense' })),
  unauthorized: () => failure(() => create()),
  provider_failure: () => failure(() => create()),
  broken_stream: async () => {
    let said = '';
    const told = await failure(async () => {
      for await (const event of await create({ stream: true })) {
        if (event.delta?.type === 'text_delta') said += event.delta.text;
      }
    });
    return { text: said, type: told.type, attempts: told.attempts };
  },
  left: async () => {
    for await (const event of await create({ stream: true, agent: { reconnect_grace_ms: 0 } })) {
      // Leaving the loop closes the connection.
      if (event.delta?.type === 'text_delta') return { text: event.delta.text };
    }
    throw new Error('there was no text');
  },
  repeated: async () => {
    const message = await create();
    return { text: text(message), attempts };
  },
  counted: async () => {
    const { input_tokens: tokens } = await client.messages.countTokens({ model: 'test', messages: asked.messages });
    return { counts: tokens > 0 };
  },
  models: async () => {
    const listed = [];
    for await (const model of client.models.list()) listed.push(model);
    return { ids: listed.map((model) => model.id), one: (await client.models.retrieve(listed[0].id)).display_name };
  },
};

console.log(JSON.stringify(await cases[process.argv[2]]()));
