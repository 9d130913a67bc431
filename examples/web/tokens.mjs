// A backend for pages that call Loopgate themselves: it serves this directory, and gives each visitor a token for a session of their
// own. The key stays here; all else goes straight from the page to Loopgate. AGENT is the one agent that visitors may use: a token
// that names none lets the page choose among all agents and models of the key.
//
//   LOOPGATE_KEY=lg_… AGENT=guide node tokens.mjs
//   open http://127.0.0.1:8000/tokens.html

import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';

const { LOOPGATE_URL = 'http://127.0.0.1:8080', LOOPGATE_KEY, AGENT, PORT = '8000', TTL_S = '300' } = process.env;
// Where pages reach Loopgate, if it is elsewhere.
const { LOOPGATE_PUBLIC_URL = LOOPGATE_URL } = process.env;
if (!LOOPGATE_KEY || !AGENT) {
  console.error('set LOOPGATE_KEY, which `loopgate key new` makes, and AGENT, the name of the agent that visitors may use');
  process.exit(1);
}
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript' };

const server = createServer(async (request, response) => {
  const [pathname] = request.url.split('?');
  // In place of `visitor` take the accounts of your users.
  const visitor = /visitor=([\w-]+)/.exec(request.headers.cookie)?.[1];
  if (pathname !== '/token') return serve(pathname, visitor ?? randomUUID(), response);
  if (request.method !== 'POST' || !visitor) return response.writeHead(403).end();
  try {
    const may = ['follow', 'start', 'steer'];
    const body = { session_id: `visitor-${visitor}`, may, agent: AGENT, user: visitor, ttl_s: Number(TTL_S) };
    const headers = { authorization: `Bearer ${LOOPGATE_KEY}`, 'content-type': 'application/json' };
    const answer = await fetch(`${LOOPGATE_URL}/v1/tokens`, { method: 'POST', headers, body: JSON.stringify(body) });
    if (!answer.ok) console.error(await answer.text());
    const { token } = answer.ok ? await answer.json() : {};
    response.writeHead(answer.ok ? 200 : 502, { 'content-type': 'application/json', 'cache-control': 'no-store' });
    response.end(JSON.stringify({ url: LOOPGATE_PUBLIC_URL, token }));
  } catch {
    response.writeHead(502).end();
  }
});

async function serve(pathname, visitor, response) {
  const name = pathname.slice(1);
  if (!/^\w+\.(html|js)$/.test(name)) return response.writeHead(404).end();
  const text = await readFile(new URL(name, import.meta.url)).catch(() => undefined);
  if (text === undefined) return response.writeHead(404).end();
  const cookie = `visitor=${visitor}; HttpOnly; SameSite=Strict; Path=/`;
  response.writeHead(200, { 'content-type': TYPES[name.split('.')[1]], 'set-cookie': cookie }).end(text);
}

server.listen(Number(PORT), '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
