// OpenAI's agents for Node, whose model is the server, by way of responses.
//
// Usage: with_agents.mjs CASE BASE_URL, with the packages under LOOPGATE_TEST_NODE_MODULES. Prints one line of
// JSON, what a user would see; with_agents.py prints the same.

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

const main = async (name) => {
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
