// Streams an answer with OpenAI's client: text as it is written, tool calls as they happen.
//
//   npm install openai
//   node stream.mjs                    with LOOPGATE_URL, LOOPGATE_KEY and MODEL if they are not the usual

import OpenAI from 'openai';

const { LOOPGATE_URL = 'http://127.0.0.1:8080', LOOPGATE_KEY = 'none', MODEL = 'demo' } = process.env;
const client = new OpenAI({ baseURL: `${LOOPGATE_URL}/v1`, apiKey: LOOPGATE_KEY });

const stream = await client.chat.completions.create({
  model: MODEL,
  messages: [{ role: 'user', content: 'What is 1234 * 5678?' }],
  stream: true,
  // Not OpenAI's: with "extension" the server's events ride on ordinary chunks.
  agent: { events: 'extension' },
});
for await (const chunk of stream) {
  const event = chunk.loopgate ?? {};
  if (event.type === 'tool.call') console.log('->', event.name, JSON.stringify(event.arguments));
  if (event.type === 'tool.result') console.log('<-', event.content);
  process.stdout.write(chunk.choices[0]?.delta?.content ?? '');
}
console.log();
