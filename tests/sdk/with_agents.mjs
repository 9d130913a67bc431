// OpenAI's agents for Node, whose model is the server, by way of responses.
//
// Usage: with_agents.mjs CASE BASE_URL, with the packages under LOOPGATE_TEST_NODE_MODULES. Prints one line of
// JSON, what a user would see; with_agents.py prints the same.
//
// Checks of `@openai/agents` for Node:
//   text: plain, streamed
//   server tool: server_tool
//   client tool: plain, streamed
//   approval: approval
//   structured output: structured
//   failure: failure
//   limit: limit
//   cancel: left
//   resume: none: it reads a stream once
//   background: none: its functions wait for the answer

import { createRequire } from 'node:module';

process.env.OPENAI_BASE_URL = `${process.argv[3]}/v1`;
process.env.OPENAI_API_KEY = 'sk-test';
const require = createRequire(`${process.env.LOOPGATE_TEST_NODE_MODULES}/`);
const { Agent, hostedMcpTool, run, setTracingDisabled, tool } = require('@openai/agents');
const { z } = require('zod');

setTracingDisabled(true);
const called = [];
const weather = tool({
  name: 'get_weather',
  description: 'Tells the weather.',
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    called.push(city);
    return 'rain';
  },
});
const gated = hostedMcpTool({
  serverLabel: 'loopgate',
  requireApproval: 'always',
  onApproval: async (_context, item) => {
    called.push(item.rawItem.name);
    return { approve: true };
  },
});

const within = (limits, more = {}) => {
  const modelSettings = { providerData: { agent: { limits, ...more } } };
  return new Agent({ name: 'tester', model: 'test', modelSettings });
};

const others = {
  server_tool: async () => ({ text: (await run(new Agent({ name: 'tester', model: 'test' }), 'Hi')).finalOutput }),
  structured: async () => {
    const agent = new Agent({ name: 'tester', model: 'test', outputType: z.object({ n: z.number() }) });
    return (await run(agent, 'Hi')).finalOutput;
  },
  failure: async () => {
    try {
      await run(new Agent({ name: 'tester', model: 'test' }), 'Hi');
    } catch (error) {
      return { told: error.message.includes('No such thing.') };
    }
    throw new Error('no error was raised');
  },
  // An incomplete response is no final output to these agents.
  limit: async () => {
    try {
      await run(within({ max_iterations: 1 }), 'Hi');
    } catch (error) {
      return { error: error.constructor.name };
    }
    throw new Error('no error was raised');
  },
  left: async () => {
    const controller = new AbortController();
    const result = await run(within({}, { reconnect_grace_ms: 0 }), 'Hi', { stream: true, signal: controller.signal });
    for await (const event of result) {
      if (event.type === 'raw_model_stream_event' && event.data.type === 'output_text_delta') {
        controller.abort();
        return { text: event.data.delta };
      }
    }
  },
};

const main = async (name) => {
  if (others[name]) return others[name]();
  if (!['plain', 'streamed', 'approval'].includes(name)) throw new Error(name);
  const tools = name === 'approval' ? [gated] : [weather];
  const agent = new Agent({ name: 'tester', instructions: 'Be short.', model: 'test', tools });
  let result;
  if (name === 'streamed') {
    result = await run(agent, 'Hi', { stream: true });
    for await (const _ of result);
    await result.completed;
  } else {
    result = await run(agent, 'Hi');
  }
  const more = await run(agent, 'And now?', { previousResponseId: result.lastResponseId });
  return { text: result.finalOutput, called, more: more.finalOutput };
};

console.log(JSON.stringify(await main(process.argv[2])));
