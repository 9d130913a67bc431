// A tool that runs in the client, in a session: the run waits while the client calls it.
//
//   npm install openai
//   node client_tool.mjs

import OpenAI from 'openai';

const { LOOPGATE_URL = 'http://127.0.0.1:8080', LOOPGATE_KEY = 'none', MODEL = 'demo' } = process.env;
const client = new OpenAI({ baseURL: `${LOOPGATE_URL}/v1`, apiKey: LOOPGATE_KEY });

const tools = [
  {
    type: 'function',
    function: {
      name: 'get_weather',
      description: 'The weather in a city now',
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    },
  },
];
const agent = { session_id: `sess_${crypto.randomUUID()}` };
const getWeather = ({ city }) => `7 °C and rain in ${city}`;

let messages = [{ role: 'user', content: 'Call get_weather with {"city": "Oslo"}, and tell me what it says.' }];
for (;;) {
  const answer = await client.chat.completions.create({ model: MODEL, messages, tools, agent });
  const { message, finish_reason } = answer.choices[0];
  if (finish_reason !== 'tool_calls') {
    console.log(message.content);
    break;
  }
  // The session has the conversation, so only the results are sent.
  messages = message.tool_calls.map((call) => {
    console.log('calling', call.function.name, call.function.arguments);
    return { role: 'tool', tool_call_id: call.id, content: getWeather(JSON.parse(call.function.arguments)) };
  });
}
