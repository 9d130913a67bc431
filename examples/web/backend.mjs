// A backend for pages: serves fetch.html and eventsource.html, and passes their requests on to Loopgate with the API key, which no
// page sees. The other pages need requests that it does not let through.
//
//   LOOPGATE_KEY=lg_… node backend.mjs
//   open http://127.0.0.1:8000/fetch.html?url=          an empty `url` is the backend itself

import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';

const { LOOPGATE_URL = 'http://127.0.0.1:8080', LOOPGATE_KEY, PORT = '8000' } = process.env;
if (!LOOPGATE_KEY) {
  console.error('LOOPGATE_KEY is not set: `loopgate key new` makes a key');
  process.exit(1);
}
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript' };

// A key sees all runs of its tenant, so the backend remembers whose each run is. In place of `visitor` take the
// accounts of your users, and a database in place of the map.
const visitors = new Map();
const ALLOWED = [
  /^POST \/v1\/agent\/completions$/,
  /^GET \/v1\/runs\/(run_\w+)\/events$/,
  /^POST \/v1\/runs\/(run_\w+)\/cancel$/,
];

const server = createServer(async (request, response) => {
  const [pathname] = request.url.split('?');
  const visitor = /visitor=([\w-]+)/.exec(request.headers.cookie)?.[1] ?? randomUUID();
  if (!pathname.startsWith('/v1/')) return serve(pathname, visitor, response);

  const matched = ALLOWED.map((allowed) => allowed.exec(`${request.method} ${pathname}`)).find(Boolean);
  if (!matched || (matched[1] && visitors.get(matched[1]) !== visitor)) return response.writeHead(404).end();

  const headers = { authorization: `Bearer ${LOOPGATE_KEY}` };
  for (const name of ['content-type', 'last-event-id', 'idempotency-key']) {
    if (request.headers[name]) headers[name] = request.headers[name];
  }
  // A page that goes away ends its connection to Loopgate too, so that the run learns of it.
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  try {
    const body = request.method === 'POST' ? Readable.toWeb(request) : undefined;
    const options = { method: request.method, headers, body, duplex: 'half', signal: gone.signal };
    const answer = await fetch(LOOPGATE_URL + request.url, options);
    const run = answer.headers.get('x-loopgate-run-id');
    if (run && !matched[1]) visitors.set(run, visitor);
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    // Piece by piece: a stream must not be collected.
    if (answer.body) for await (const piece of answer.body) response.write(piece);
    response.end();
  } catch {
    response.destroy();
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
