// What published clients for Node read of a stream, however its bytes are split.
//
// Usage: split.mjs DIALECT BASE_URL, with the packages under LOOPGATE_TEST_NODE_MODULES. BASE_URL/SIZE/FIRST has the stream in
// pieces of SIZE bytes, of which the first has FIRST; a SIZE of 0 means one piece. Prints one line of JSON: how many events
// there are, and for which splits they are others.

import { createRequire } from 'node:module';

const require = createRequire(`${process.env.LOOPGATE_TEST_NODE_MODULES}/`);
const { OpenAI } = require('openai');
const { Anthropic } = require('@anthropic-ai/sdk');
const { DefaultChatTransport } = require('ai');
const { HttpAgent } = require('@ag-ui/client');

const [dialect, url] = process.argv.slice(2);
const messages = [{ role: 'user', content: 'Hi' }];
const openai = (base) => new OpenAI({ baseURL: `${base}/v1`, apiKey: 'sk-test', maxRetries: 0 });
const all = async (stream) => {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
};

const read = {
  chat: async (base) => all(await openai(base).chat.completions.create({ model: 'test', messages, stream: true })),
  agent: async (base) =>
    all(await openai(base).post('/agent/completions', { body: { model: 'test', messages }, stream: true })),
  responses: async (base) => all(await openai(base).responses.create({ model: 'test', input: 'Hi', stream: true })),
  messages: async (base) => {
    const client = new Anthropic({ baseURL: base, apiKey: 'sk-test', maxRetries: 0 });
    return all(await client.messages.create({ model: 'test', max_tokens: 100, messages, stream: true }));
  },
  'ai-sdk': async (base) => {
    const transport = new DefaultChatTransport({ api: `${base}/v1/agent/ui` });
    const asked = [{ id: 'm', role: 'user', parts: [{ type: 'text', text: 'Hi' }] }];
    return all(await transport.sendMessages({ chatId: 'c', messages: asked, trigger: 'submit-message' }));
  },
  'ag-ui': (base) =>
    new Promise((resolve, reject) => {
      const events = [];
      const agent = new HttpAgent({ url: `${base}/v1/agent/ag-ui` });
      const input = { threadId: 't', runId: 'r', messages: [], tools: [], context: [], state: {}, forwardedProps: {} };
      const next = (event) => events.push(event);
      agent.run(input).subscribe({ next, error: reject, complete: () => resolve(events) });
    }),
};

const whole = JSON.stringify(await read[dialect](`${url}/0/0`));
const different = [];
for (const [size, firsts] of [[1, 1], [61, 61]]) {
  for (let first = 0; first < firsts; first += 1) {
    const seen = JSON.stringify(await read[dialect](`${url}/${size}/${first}`));
    if (seen !== whole) different.push([size, first]);
  }
}
console.log(JSON.stringify({ events: JSON.parse(whole).length, different }));
