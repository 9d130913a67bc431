// The official OpenAI client for Node, used as its users use it.
//
// Usage: client.mjs CASE BASE_URL, with the client under LOOPGATE_TEST_NODE_MODULES. Prints one line of
// JSON, what a user would see; client.py prints the same.
//
// Checks of `openai` for Node, chat completions:
//   text: chat, stream, stream_usage, helper
//   server tool: extension, helper
//   client tool: client_tools, client_tools_streamed
//   approval: approval
//   structured output: structured
//   failure: unknown_model, provider_failure, broken_stream
//   limit: limited, quota
//   cancel: cancelled
//   resume: resumed, repeated
//   background: background

import { createRequire } from 'node:module';

const require = createRequire(`${process.env.LOOPGATE_TEST_NODE_MODULES}/`);
const { OpenAI, APIError } = require('openai');
const { zodResponseFormat } = require('openai/helpers/zod');
const { z } = require('zod');

let attempts = 0;
const client = new OpenAI({
  baseURL: `${process.argv[3]}/v1`,
  apiKey: 'sk-test',
  fetch: (url, init) => {
    attempts += 1;
    return fetch(url, init);
  },
});
const question = [{ role: 'user', content: 'Hi' }];
const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
};
const create = (options) => client.chat.completions.create({ model: 'test', messages: question, ...options });

const failure = async (call) => {
  try {
    await call();
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    return {
      error: error.constructor.name,
      status: error.status ?? null,
      code: error.code,
      type: error.type,
      param: error.param,
      has_request_id: Boolean(error.requestID),
      attempts,
    };
  }
  throw new Error('no error was raised');
};

const clientTools = async (streamed) => {
  const messages = [...question];
  const called = [];
  for (;;) {
    const options = { messages, tools: [weather] };
    const answer = streamed
      ? await client.chat.completions.stream({ model: 'test', ...options }).finalChatCompletion()
      : await create(options);
    const { message } = answer.choices[0];
    // The transcript goes back as it came.
    messages.push(message);
    if (!message.tool_calls?.length) return { content: message.content, called };
    for (const call of message.tool_calls) {
      called.push([call.function.name, JSON.parse(call.function.arguments)]);
      messages.push({ role: 'tool', tool_call_id: call.id, content: 'rain' });
    }
  }
};

// Begins a run that needs no reader. Its answer is a run, and no completion.
const begin = () => client.post('/chat/completions', { body: { model: 'test', messages: question, agent: { background: true } } });

const cases = {
  async chat() {
    const answer = await create();
    return {
      content: answer.choices[0].message.content,
      finish_reason: answer.choices[0].finish_reason,
      total_tokens: answer.usage.total_tokens,
      status: answer.agent.status,
      has_request_id: Boolean(answer._request_id),
    };
  },

  async repeated() {
    const answer = await create();
    return { content: answer.choices[0].message.content, attempts };
  },

  async stream() {
    let text = '';
    let finish_reason = null;
    const ids = new Set();
    for await (const chunk of await create({ stream: true })) {
      // What most programs do: no thought of chunks without choices.
      text += chunk.choices[0].delta.content ?? '';
      finish_reason = chunk.choices[0].finish_reason ?? finish_reason;
      ids.add(chunk.id);
    }
    return { text, finish_reason, ids: ids.size };
  },

  async stream_usage() {
    let text = '';
    let total_tokens = null;
    let usages = 0;
    for await (const chunk of await create({ stream: true, stream_options: { include_usage: true } })) {
      text += chunk.choices[0]?.delta.content ?? '';
      if (chunk.usage) {
        total_tokens = chunk.usage.total_tokens;
        usages += 1;
      }
    }
    return { text, total_tokens, usages };
  },

  async helper() {
    const answer = await client.chat.completions.stream({ model: 'test', messages: question }).finalChatCompletion();
    return { content: answer.choices[0].message.content, finish_reason: answer.choices[0].finish_reason };
  },

  client_tools: () => clientTools(false),
  client_tools_streamed: () => clientTools(true),

  async approval() {
    const first = await create({ agent: { policy: { ask: ['calculator'] } } });
    const waits = first.agent.required_action.calls;
    const approvals = waits.map(({ call_id }) => ({ call_id, decision: 'approve' }));
    const answer = await client.post(`/runs/${first.agent.run_id}/approvals`, { body: { approvals } });
    return { asked: waits.map((call) => call.name), content: answer.choices[0].message.content };
  },

  async structured() {
    const response_format = zodResponseFormat(z.object({ n: z.number().int() }), 'number');
    const answer = await client.chat.completions.parse({ model: 'test', messages: question, response_format });
    return { n: answer.choices[0].message.parsed.n };
  },

  async limited() {
    const answer = await create({ agent: { limits: { max_iterations: 1 } } });
    return { finish_reason: answer.choices[0].finish_reason, stop_reason: answer.agent.stop_reason };
  },

  async background() {
    let run = await begin();
    while (['queued', 'in_progress'].includes(run.status)) run = await client.get(`/runs/${run.id}`);
    return { status: run.status, content: run.output_text };
  },

  async cancelled() {
    const path = `/runs/${(await begin()).id}/cancel`;
    return { status: (await client.post(path)).status, again: (await client.post(path)).status };
  },

  // The stream of a run, as the chunks of a chat completion.
  async resumed() {
    let text = '';
    const chunks = await client.get(`/runs/${(await begin()).id}/events`, { query: { events: 'none' }, stream: true });
    for await (const chunk of chunks) text += chunk.choices[0].delta.content ?? '';
    return { text };
  },

  async session() {
    const agent = { session_id: 'sdk-session' };
    const first = await create({ agent });
    const second = await create({ agent, messages: [{ role: 'user', content: 'And now?' }] });
    return {
      sessions: [first.agent.session_id, second.agent.session_id],
      contents: [first.choices[0].message.content, second.choices[0].message.content],
    };
  },

  async extension() {
    let text = '';
    const events = [];
    for await (const chunk of await create({ stream: true, agent: { events: 'extension' } })) {
      text += chunk.choices[0].delta.content ?? '';
      if (chunk.loopgate?.type) events.push(chunk.loopgate.type);
    }
    return { text, events };
  },

  async models() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    return { ids, one: (await client.models.retrieve('scripted/test')).id };
  },

  unknown_model: () => failure(() => create({ model: 'nonsense' })),
  provider_failure: () => failure(() => create()),
  unauthorized: () => failure(() => create()),
  quota: () => failure(() => create({ agent: { limits: { token_budget: 1 } } })),

  async broken_stream() {
    let text = '';
    const failed = await failure(async () => {
      for await (const chunk of await create({ stream: true })) text += chunk.choices[0].delta.content ?? '';
    });
    return { ...failed, text };
  },
};

console.log(JSON.stringify(await cases[process.argv[2]]()));
