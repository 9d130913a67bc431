// A page in headless Chromium, which is driven by its DevTools protocol over pipes.
//
// Usage: browser.mjs URL STEP…, where a step is `click:SELECTOR`, `reload` or `wait:TEXT`. A wait lasts until the page shows
// the text, and is printed then. At the end all that the page shows is printed as JSON, with what the browser complained of
// and what axe finds that keeps people out. axe is under LOOPGATE_TEST_NODE_MODULES.

import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [url, ...steps] = process.argv.slice(2);
const profile = await mkdtemp(join(tmpdir(), 'loopgate-pages-'));
// Tests may run as root in a container, where Chromium's own sandbox cannot be made.
const flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run'];
const browser = spawn('chromium', [...flags, '--remote-debugging-pipe', `--user-data-dir=${profile}`, 'about:blank'], {
  stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
});
const [, , , input, output] = browser.stdio;

let last = 0;
const waiting = new Map();
const complaints = [];
let rest = '';
output.setEncoding('utf8').on('data', (piece) => {
  const messages = (rest + piece).split('\0');
  rest = messages.pop();
  for (const { id, result, error, method, params } of messages.map((message) => JSON.parse(message))) {
    if (id) (error ? waiting.get(id).reject(new Error(error.message)) : waiting.get(id).resolve(result));
    if (method === 'Runtime.exceptionThrown') complaints.push(params.exceptionDetails.exception?.description ?? 'thrown');
    if (method === 'Log.entryAdded' && params.entry.level === 'error') complaints.push(params.entry.text);
  }
});

let session;
const ask = (method, params = {}) =>
  new Promise((resolve, reject) => {
    waiting.set(++last, { resolve, reject });
    input.write(`${JSON.stringify({ id: last, method, params, sessionId: session })}\0`);
  });
const evaluate = async (expression) => {
  const how = { returnByValue: true, awaitPromise: true };
  const { result, exceptionDetails } = await ask('Runtime.evaluate', { expression, ...how });
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description);
  return result.value;
};
const until = async (expression) => {
  // While a page is loaded there is nothing to ask.
  while (!(await evaluate(expression).catch(() => false))) await new Promise((resolve) => setTimeout(resolve, 10));
};

try {
  const { targetInfos } = await ask('Target.getTargets');
  const { targetId } = targetInfos.find(({ type }) => type === 'page');
  ({ sessionId: session } = await ask('Target.attachToTarget', { targetId, flatten: true }));
  await ask('Runtime.enable');
  await ask('Log.enable');
  await ask('Page.enable');
  await ask('Page.navigate', { url });
  await until(`location.href !== 'about:blank' && document.readyState === 'complete'`);
  for (const step of steps) {
    const [what, ...parts] = step.split(':');
    const value = JSON.stringify(parts.join(':'));
    if (what === 'click') await evaluate(`document.querySelector(${value}).click()`);
    if (what === 'reload') await ask('Page.reload');
    if (what === 'wait') {
      await until(`document.body.innerText.includes(${value})`);
      console.log(parts.join(':'));
    }
  }
  const lines = `[...document.querySelectorAll('#log li')].map((line) => line.textContent.trim())`;
  const shown = await evaluate(`({ answer: document.getElementById('answer').textContent, log: ${lines} })`);
  await evaluate(await readFile(join(process.env.LOOPGATE_TEST_NODE_MODULES, 'axe-core/axe.min.js'), 'utf8'));
  const serious = `violations.filter(({ impact }) => ['serious', 'critical'].includes(impact)).map(({ help }) => help)`;
  const barriers = await evaluate(`axe.run().then(({ violations }) => ${serious})`);
  console.log(JSON.stringify({ ...shown, complaints, barriers }));
} finally {
  browser.kill('SIGKILL');
  await new Promise((resolve) => browser.on('exit', resolve));
  await rm(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
}
