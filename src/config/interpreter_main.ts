/**
 * The process that evaluates Jsonnet, one expression at a time. Libjsonnet computes in a thread of libuv's pool, so this thread is free to watch
 * memory and time, and to end the process: nothing else stops a computation. It also ends with the process that started it.
 */
import type { Evaluate, FromInterpreter, ToInterpreter } from './interpreter.js';

const POLL_MS = 20;

/**
 * Growth of the number of objects since the last collection that starts the next one. Each collection walks everything alive: at libjsonnet's default
 * of 2, evaluating 10,000 cells of one axis took 7.5 s and 274 MB; at 8, 5.5 s and 402 MB.
 */
const GC_GROWTH = 8;

/** The part of the binding that is used here; the package's own declarations are not reachable through its `exports`. */
interface Binding {
  setGcGrowthTrigger(factor: number): this;
  extString(key: string, value: string): this;
  nativeCallback(name: string, native: (text: unknown) => Promise<unknown>, parameter: string): this;
  evaluateSnippet(snippet: string, filename: string): Promise<string>;
}

/** The pending call to the other side; the evaluation waits for its answer. */
let asked: { resolve(value: unknown): void; reject(error: Error): void } | null = null;
let isBusy = false;

const tell = (said: FromInterpreter, then?: () => void): void => void process.send?.(said, undefined, {}, then);
const end = (): void => void process.kill(process.pid, 'SIGKILL');
const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

async function newBinding(): Promise<Binding> {
  const packageName: string = '@hanazuki/node-jsonnet';
  const { Jsonnet } = (await import(packageName)) as { Jsonnet: new () => Binding };
  return new Jsonnet().setGcGrowthTrigger(GC_GROWTH);
}

/** Calls `beyond` once the process uses too much memory or has computed for too long; time that the other side takes to answer does not count. */
function watch({ bytes, ms }: Evaluate['limits'], beyond: (what: 'memory' | 'time') => void): () => void {
  // Counts polls instead of reading the clock: a computer that was asleep has not computed.
  let polls = 0;
  const timer = setInterval(() => {
    if (asked === null) polls += 1;
    const what = process.memoryUsage.rss() > bytes ? 'memory' : polls * POLL_MS > ms ? 'time' : null;
    if (what === null) return;
    clearInterval(timer);
    beyond(what);
  }, POLL_MS);
  return () => clearInterval(timer);
}

async function evaluate({ snippet, name, variables, natives, limits }: Evaluate): Promise<FromInterpreter> {
  let binding: Binding;
  try {
    binding = await newBinding();
  } catch (error) {
    return { kind: 'unavailable', text: messageOf(error) };
  }
  for (const [key, value] of Object.entries(variables)) binding.extString(key, value);
  for (const native of natives) {
    const call = (text: unknown): Promise<unknown> =>
      new Promise((resolve, reject) => {
        asked = { resolve, reject };
        tell({ kind: 'call', native, text: String(text) });
      });
    binding.nativeCallback(native, call, 'text');
  }
  const stop = watch(limits, (what) => tell({ kind: 'beyond', what }, end));
  try {
    const text = await binding.evaluateSnippet(snippet, name);
    return { kind: 'value', text, bytes: process.memoryUsage.rss() };
  } catch (error) {
    return { kind: 'refused', text: messageOf(error) };
  } finally {
    stop();
  }
}

process.on('disconnect', () => {
  // An idle process ends by itself.
  if (isBusy) end();
});
process.on('message', (said: ToInterpreter) => {
  if (said.kind !== 'evaluate') {
    const waiting = asked;
    asked = null;
    if (said.kind === 'answer') waiting?.resolve(said.value);
    else waiting?.reject(new Error(said.text));
    return;
  }
  isBusy = true;
  void evaluate(said).then((result) => {
    isBusy = false;
    tell(result);
  });
});
