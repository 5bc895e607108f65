/** Figures of comparisons with other programs, as tests write them into docs/reference/agreement.json. */

/** One model compared with transformers and peft. Differences are relative to the largest value, in float32. */
export interface Agreement {
  /** The `model_type` of its config.json. */
  readonly model_type: string;
  /** Inputs of the comparison. */
  readonly inputs: 'text' | 'images' | 'images and clips';
  readonly transformers: string;
  /** Absent: compared without an adapter. */
  readonly peft?: string;
  /** The largest difference by quantity. */
  readonly differences: Readonly<Partial<Record<Quantity, number>>>;
  /** Greedy answers that equal those of the other program, of all compared. Absent: none were compared. */
  readonly answers?: { readonly equal: number; readonly compared: number };
  /** The linear layers that `all-linear` adapts, by the last part of their names. Absent: compared without an adapter. */
  readonly adapted?: readonly string[];
}

/** Compared quantities, with their names on the page. */
export const quantities = {
  states: 'hidden states',
  logProbs: 'log-probabilities',
  gradients: 'gradients',
  adapterLogProbs: "log-probabilities with peft's adapter",
  adapterGradients: "gradients of peft's adapter",
  exportedAdapter: 'our adapter in peft',
  merged: 'merged model in transformers',
} as const;
export type Quantity = keyof typeof quantities;
