/**
 * The process that renders chat templates, one after the other. A template may loop forever. Therefore this process
 * stops a rendering after a timeout, and its parent process limits its heap. It exits with its parent. Started without
 * a channel, it renders the request on standard input and exits.
 */
import { readFileSync } from 'node:fs';
import { runInThisContext } from 'node:vm';
import { renderTemplate } from './python_jinja.js';
import { parseTemplate, type Node } from './syntax.js';
import type { FromRenderer, ToRenderer } from './template.js';

const templates = new Map<string, Node>();

function render({ source, names, now }: ToRenderer): string {
  const template = templates.get(source) ?? parseTemplate(source);
  templates.set(source, template);
  return renderTemplate(template, names, new Date(now));
}

/** The current request. A timeout needs a script, and a script has only global names. */
const job: { render: () => string } = Object.assign(globalThis, { render: () => '' });

function answer(message: ToRenderer): FromRenderer {
  job.render = () => render(message);
  try {
    return { kind: 'text', text: runInThisContext('render()', { timeout: message.withinMs }) as string };
  } catch (error) {
    const { code, message: words } = error as NodeJS.ErrnoException;
    return code === 'ERR_SCRIPT_EXECUTION_TIMEOUT' ? { kind: 'late' } : { kind: 'failed', words };
  }
}

if (process.send === undefined) {
  process.stdout.write(JSON.stringify(answer(JSON.parse(readFileSync(0, 'utf8')) as ToRenderer)));
} else {
  process.on('message', (message: ToRenderer) => process.send?.(answer(message)));
  process.on('disconnect', () => process.exit(0));
}
