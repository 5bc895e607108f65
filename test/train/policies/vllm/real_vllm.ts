/** A real vLLM on a CPU, for tests that are left out unless EDITRL_VLLM names a Python environment that has it (docs/guide/gpus-and-servers.md). */
import { join } from 'node:path';

const environment = process.env['EDITRL_VLLM'];

/** Whether there is one. */
export const hasVllm = environment !== undefined;
/** What the name of a suite says of why it is left out. */
export const LEFT_OUT = hasVllm ? '' : ' (left out: EDITRL_VLLM names no environment)';
/** Starts it with the model and flags behind. */
export const VLLM = [join(environment ?? '', 'bin', 'vllm'), 'serve'];
/** Flags by which it computes what this program does. */
export const EXACT = ['--dtype', 'float32', '--enforce-eager'];
/** Variables by which it runs on a CPU beside others. */
export const ON_CPU = { VLLM_CPU_OMP_THREADS_BIND: 'nobind', VLLM_CPU_KVCACHE_SPACE: '1', HF_HUB_OFFLINE: '1' };
