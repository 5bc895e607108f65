/** Results of passes and samples as JSON. Servers write null for a number that is not finite. */
import { z } from 'zod';
import { UnreadableReply, type PassResult, type SampleResult } from './data.js';

const number = z.number().nullable();
const pass = z.object({
  loss_fn_outputs: z.array(z.record(z.string(), z.object({ data: z.array(number) }))),
  metrics: z.record(z.string(), number).nullish(),
});
const sample = z.object({
  sequences: z.array(
    z.object({
      tokens: z.array(z.int()),
      logprobs: z.array(number).nullish(),
      stop_reason: z.enum(['stop', 'length']),
    }),
  ),
  prompt_logprobs: z.array(number).nullish(),
});

/** Raises UnreadableReply for a value that is no such result. */
export function passFromJson(value: unknown): PassResult {
  const { loss_fn_outputs, metrics } = parseForm(pass, value);
  return {
    outputs: loss_fn_outputs.map((one) =>
      Object.fromEntries(Object.entries(one).map(([name, { data }]) => [name, numbers(data)])),
    ),
    metrics: Object.fromEntries(Object.entries(metrics ?? {}).map(([name, each]) => [name, each ?? NaN])),
  };
}

/** The form that `passFromJson` returns. */
export function sampleFromJson(value: unknown): SampleResult {
  const { sequences, prompt_logprobs } = parseForm(sample, value);
  return {
    sequences: sequences.map(({ tokens, logprobs, stop_reason }) => ({
      tokens: Int32Array.from(tokens),
      logProbs: (logprobs ?? null) === null ? null : numbers(logprobs as (number | null)[]),
      stopped: stop_reason === 'stop',
    })),
    promptLogProbs: (prompt_logprobs ?? null) === null ? null : numbers(prompt_logprobs as (number | null)[]),
  };
}

/** Raises UnreadableReply with the place that is wrong. */
export function parseForm<T extends z.ZodType>(form: T, value: unknown): z.output<T> {
  const found = form.safeParse(value);
  if (found.success) return found.data;
  const [{ path, message }] = found.error.issues;
  throw new UnreadableReply(`${path.join('.')}: ${message}`);
}

function numbers(values: readonly (number | null)[]): Float64Array {
  return Float64Array.from(values, (value) => value ?? NaN);
}
