// The AI SDK's functions for servers, whose model is the server.
//
// Usage: ai_sdk.mjs "API CASE, API CASE, …" BASE_URL, where API is chat, responses or messages, with the packages under
// LOOPGATE_TEST_NODE_MODULES. Prints one line of JSON, what a user would see of each.
//
// Checks of `ai` with `@ai-sdk/openai`, chat completions:
//   text: chat text
//   server tool: chat server_tool
//   client tool: chat client_tool
//   approval: none: chat completions have no form for it
//   structured output: chat structured
//   failure: chat failure
//   limit: chat limit
//   cancel: chat left
//   resume: none: it reads a stream once
//   background: none: its functions wait for the answer
//
// Checks of `ai` with `@ai-sdk/openai`, responses:
//   text: responses text
//   server tool: responses server_tool
//   client tool: responses client_tool
//   approval: responses approval
//   structured output: responses structured
//   failure: responses failure
//   limit: responses limit
//   cancel: responses left
//   resume: none: it reads a stream once
//   background: none: its functions wait for the answer
//
// Checks of `ai` with `@ai-sdk/anthropic`:
//   text: messages text
//   server tool: messages server_tool
//   client tool: messages client_tool
//   approval: none: the turn pauses; to go on from there was not tried
//   structured output: messages structured
//   failure: messages failure
//   limit: messages limit
//   cancel: messages left
//   resume: none: it reads a stream once
//   background: none: its functions wait for the answer

import { createRequire } from 'node:module';

const require = createRequire(`${process.env.LOOPGATE_TEST_NODE_MODULES}/`);
const { generateText, Output, stepCountIs, streamText, tool } = require('ai');
const { createAnthropic } = require('@ai-sdk/anthropic');
const { createOpenAI } = require('@ai-sdk/openai');
const { z } = require('zod');

const baseURL = `${process.argv[3]}/v1`;
const openai = createOpenAI({ baseURL, apiKey: 'sk-test' });
// Chat completions take what the header says in their body alone.
const inBody = (url, init) => {
  const agent = JSON.parse(init.headers['x-loopgate-agent'] ?? '{}');
  return fetch(url, { ...init, body: JSON.stringify({ ...JSON.parse(init.body), agent }) });
};
const chat = createOpenAI({ baseURL, apiKey: 'sk-test', fetch: inBody }).chat('test');
const anthropic = createAnthropic({ baseURL, apiKey: 'sk-test' });
const models = { chat, responses: openai.responses('test'), messages: anthropic('test') };
let model;
let called;
const prompt = 'Hi';
const tools = {
  get_weather: tool({
    description: 'Tells the weather.',
    inputSchema: z.object({ city: z.string() }),
    execute: async (input) => {
      called.push(['get_weather', input]);
      return 'rain';
    },
  }),
};
const withAgent = (agent) => ({ headers: { 'x-loopgate-agent': JSON.stringify(agent) } });

const cases = {
  text: async () => ({ text: (await generateText({ model, prompt })).text }),
  server_tool: async () => {
    let text = '';
    const result = streamText({ model, prompt, onError: ({ error }) => { throw error; } });
    for await (const piece of result.textStream) text += piece;
    return { text };
  },
  client_tool: async () => {
    const { text } = await generateText({ model, prompt, tools, stopWhen: stepCountIs(5) });
    return { text, called };
  },
  approval: async () => {
    const gated = { loopgate: openai.tools.mcp({ serverLabel: 'loopgate', connectorId: 'loopgate', requireApproval: 'always' }) };
    const messages = [{ role: 'user', content: prompt }];
    const first = await generateText({ model, messages, tools: gated });
    const asked = first.content.filter(({ type }) => type === 'tool-approval-request');
    messages.push(...first.response.messages);
    const answers = asked.map(({ approvalId }) => ({ type: 'tool-approval-response', approvalId, approved: true, providerExecuted: true }));
    messages.push({ role: 'tool', content: answers });
    const second = await generateText({ model, messages, tools: gated });
    return { text: second.text, asked: asked.map(({ toolCall }) => toolCall.toolName.replace('mcp.', '')) };
  },
  structured: async () => {
    const output = Output.object({ schema: z.object({ n: z.number() }) });
    return (await generateText({ model, prompt, output })).output;
  },
  failure: async () => {
    try {
      await generateText({ model, prompt });
    } catch (error) {
      return { told: error.message.includes('No such thing.') };
    }
    throw new Error('no error was raised');
  },
  limit: async () => {
    const { finishReason } = await generateText({ model, prompt, ...withAgent({ limits: { max_iterations: 1 } }) });
    return { is_cut: finishReason === 'length' };
  },
  left: async () => {
    const controller = new AbortController();
    const { textStream } = streamText({ model, prompt, abortSignal: controller.signal, ...withAgent({ reconnect_grace_ms: 0 }) });
    for await (const text of textStream) {
      controller.abort();
      return { text };
    }
  },
};

const seen = [];
for (const asked of process.argv[2].split(', ')) {
  const [api, name] = asked.split(' ');
  model = models[api];
  called = [];
  seen.push(await cases[name]());
}
console.log(JSON.stringify(seen));
