// The official OpenAI client for Node, used as its users use it with responses.
//
// Usage: responses.mjs CASE BASE_URL, with the client under LOOPGATE_TEST_NODE_MODULES. Prints one line of
// JSON, what a user would see; responses.py prints the same.
//
// Checks of `openai` for Node, responses:
//   text: plain, streamed
//   server tool: streamed
//   client tool: client_tool, transcript
//   approval: approval
//   structured output: structured
//   failure: unknown_model, broken_stream
//   limit: limited
//   cancel: cancelled
//   resume: resumed
//   background: background

import { createRequire } from 'node:module';

const require = createRequire(`${process.env.LOOPGATE_TEST_NODE_MODULES}/`);
const { OpenAI, APIError } = require('openai');
const { zodTextFormat } = require('openai/helpers/zod');
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
const weather = {
  type: 'function',
  name: 'get_weather',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  strict: false,
};
const gated = { type: 'mcp', server_label: 'loopgate', server_description: 'Tools.', require_approval: 'always' };
const create = (options) => client.responses.create({ model: 'test', input: 'Hi', ...options });
const seen = (response) => ({
  text: response.output_text ?? response.output.flatMap((item) => item.content ?? []).map((part) => part.text).join(''),
  status: response.status,
  items: response.output.map((item) => item.type),
  total_tokens: response.usage?.total_tokens ?? null,
});
const haveGaps = (numbers) => numbers.some((number, index) => number !== index);

const failure = async (call) => {
  try {
    await call();
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    return { status: error.status ?? null, code: error.code, param: error.param, attempts };
  }
  throw new Error('no error was raised');
};

const cases = {
  plain: async () => {
    const response = await create({ instructions: 'Be short.', metadata: { a: 'b' } });
    return { ...seen(response), metadata: response.metadata };
  },
  streamed: async () => {
    let text = '';
    const types = [];
    const numbers = [];
    const stream = client.responses.stream({ model: 'test', input: 'Hi' });
    for await (const event of stream) {
      if (event.type === 'response.output_text.delta') text += event.delta;
      types.push(event.type);
      numbers.push(event.sequence_number);
    }
    const final = await stream.finalResponse();
    const told = seen(final);
    return { ...told, first: types[0], last: types.at(-1), gaps: haveGaps(numbers), same: text === told.text };
  },
  client_tool: async () => {
    let response = await create({ tools: [weather] });
    const called = [];
    for (;;) {
      const calls = response.output.filter((item) => item.type === 'function_call');
      if (!calls.length) return { ...seen(response), called };
      called.push(...calls.map((call) => [call.name, JSON.parse(call.arguments)]));
      const input = calls.map(({ call_id }) => ({ type: 'function_call_output', call_id, output: 'rain' }));
      response = await create({ input, previous_response_id: response.id, tools: [weather] });
    }
  },
  transcript: async () => {
    const input = [{ role: 'user', content: 'Hi' }];
    const called = [];
    for (;;) {
      const response = await create({ input, tools: [weather], store: false });
      // The output goes back as it came.
      input.push(...response.output);
      const calls = response.output.filter((item) => item.type === 'function_call');
      if (!calls.length) return { ...seen(response), called };
      for (const { call_id, name, arguments: given } of calls) {
        called.push([name, JSON.parse(given)]);
        input.push({ type: 'function_call_output', call_id, output: 'rain' });
      }
    }
  },
  approval: async () => {
    const first = await create({ tools: [gated] });
    const asked = first.output.filter((item) => item.type === 'mcp_approval_request');
    const input = asked.map(({ id }) => ({ type: 'mcp_approval_response', approval_request_id: id, approve: true }));
    const second = await create({ input, previous_response_id: first.id, tools: [gated] });
    return { asked: asked.map((item) => [item.name, JSON.parse(item.arguments)]), ...seen(second) };
  },
  structured: async () => {
    const format = zodTextFormat(z.object({ n: z.number().int() }), 'number');
    const response = await client.responses.parse({ model: 'test', input: 'Hi', text: { format } });
    return { n: response.output_parsed.n };
  },
  limited: async () => {
    const response = await create({ agent: { limits: { max_iterations: 1 } } });
    return { ...seen(response), reason: response.incomplete_details.reason };
  },
  unknown_model: () => failure(() => create({ model: 'nonsense' })),
  broken_stream: async () => {
    let text = '';
    const told = await failure(async () => {
      for await (const event of await create({ stream: true })) {
        if (event.type === 'response.output_text.delta') text += event.delta;
      }
    });
    return { text, code: told.code, attempts: told.attempts };
  },
  resumed: async () => {
    const events = [];
    for await (const event of await create({ stream: true, background: true })) {
      events.push(event);
      if (event.type === 'response.output_item.added') break;
    }
    const starting_after = events.at(-1).sequence_number;
    const rest = await client.responses.retrieve(events[0].response.id, { stream: true, starting_after });
    for await (const event of rest) events.push(event);
    return { ...seen(events.at(-1).response), gaps: haveGaps(events.map((event) => event.sequence_number)) };
  },
  background: async () => {
    let response = await create({ background: true });
    while (['queued', 'in_progress'].includes(response.status)) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      response = await client.responses.retrieve(response.id);
    }
    const input = [];
    for await (const item of client.responses.inputItems.list(response.id)) input.push(item.content[0].text);
    await client.responses.delete(response.id);
    const gone = await failure(() => client.responses.retrieve(response.id));
    return { ...seen(response), input, gone: gone.code };
  },
  cancelled: async () => {
    const begun = await create({ background: true });
    const response = await client.responses.cancel(begun.id);
    return { status: response.status, again: (await client.responses.cancel(begun.id)).status };
  },
  chained: async () => {
    const first = await create({});
    const second = await create({ input: 'And now?', previous_response_id: first.id });
    return { texts: [first.output_text, second.output_text] };
  },
};

console.log(JSON.stringify(await cases[process.argv[2]]()));
