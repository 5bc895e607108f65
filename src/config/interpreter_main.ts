/**
 * The process that evaluates Jsonnet, one expression at a time. Libjsonnet computes in a thread of libuv's pool, so this thread is free to watch
 * memory and the process that started it: nothing but a signal stops a computation.
 */
import type { Evaluate, Evaluated } from './interpreter.js';

const POLL_MS = 20;

/**
 * Growth of the number of objects since the last collection that starts the next one. Each collection walks everything alive, so libjsonnet's
 * default of 2 makes a large matrix slow.
 */
const GC_GROWTH = 8;

/** The part of the binding that is used here. The package's own declarations are not reachable through its `exports`. */
interface Binding {
  setGcGrowthTrigger(factor: number): this;
  extString(key: string, value: string): this;
  /** The folder that was added last is searched first. */
  addJpath(folder: string): this;
  evaluateSnippet(snippet: string, filename: string): Promise<string>;
}

const end = (): void => void process.kill(process.pid, 'SIGKILL');

async function evaluate({ snippet, name, variables, library, bytes: most }: Evaluate): Promise<void> {
  let version = '';
  const tell = (kind: Evaluated['kind'], text = '', then?: () => void): void => {
    const reply: Evaluated = { kind, text, version, bytes: process.memoryUsage.rss() };
    process.send?.(reply, undefined, {}, then);
  };
  const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
  const packageName: string = '@hanazuki/node-jsonnet';
  let binding: Binding;
  try {
    const { Jsonnet } = (await import(packageName)) as { Jsonnet: { new (): Binding; readonly version: string } };
    ({ version } = Jsonnet);
    binding = new Jsonnet().setGcGrowthTrigger(GC_GROWTH);
  } catch (error) {
    tell('unavailable', messageOf(error));
    return;
  }
  for (const [key, value] of Object.entries(variables)) binding.extString(key, value);
  for (const folder of [...library].reverse()) binding.addJpath(folder);
  const timer = setInterval(() => {
    if (process.memoryUsage.rss() > most) tell('memory', '', end);
  }, POLL_MS);
  try {
    tell('value', await binding.evaluateSnippet(snippet, name));
  } catch (error) {
    tell('refused', messageOf(error));
  } finally {
    clearInterval(timer);
  }
}

process.on('disconnect', end);
process.on('message', (request: Evaluate) => void evaluate(request));
