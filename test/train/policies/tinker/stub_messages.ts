/** What a stand-in of a training server reads and writes, whatever the dialect. */

import type { StubChunk } from './stub_pictures.js';

export interface StubDatum {
  readonly chunks: readonly StubChunk[];
  readonly inputs: Readonly<Record<string, readonly number[]>>;
}

export interface StubTraining {
  readonly model_id: string;
  readonly seq_id: number;
  readonly loss_fn: string;
  readonly data: readonly StubDatum[];
  readonly forwardOnly: boolean;
}

export interface StubSample {
  readonly sequences: readonly {
    readonly tokens: readonly number[];
    readonly logprobs: readonly number[];
    readonly stop_reason: 'stop' | 'length';
  }[];
  readonly prompt_logprobs: readonly (number | null)[] | null;
}
