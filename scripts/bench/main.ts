/** `npm run bench -- NAME`: a table of benchmarks, each a file beside this one. */
import { UsageError } from '../../src/core/errors.js';

const benches: Readonly<Record<string, { readonly summary: string; readonly run: () => Promise<void> }>> = {
  iteration: {
    summary: "one GRPO iteration's time split, and the training graph beside its bare matrix products",
    run: async () => (await import('./iteration.js')).benchIteration(),
  },
  flow: {
    summary:
      "a flow transformer's training and sampling graphs beside their bare matrix products, and where the time goes",
    run: async () => (await import('./flow.js')).benchFlow(),
  },
  'flow-epoch': {
    summary:
      'an iteration of ip_adapter beside a torch loop of its steps, in turns, and its share outside onnxruntime and rewards; `flow-epoch [--python PATH] [--rounds N]`',
    run: async () => (await import('./flow_epoch.js')).benchFlowEpoch(),
  },
  processes: {
    summary: 'two processes with one thread each beside one process with two threads',
    run: async () => (await import('./processes.js')).benchProcesses(),
  },
  sweep: {
    summary: 'what a sweep costs beyond its runs: until the first worker speaks, and between runs',
    run: async () => (await import('./sweep.js')).benchSweep(),
  },
  plan: {
    summary: 'editrl plan of 10,000 cells: seconds and peak memory, by the shape of the axes',
    run: async () => (await import('./plan.js')).benchPlan(),
  },
  memory: {
    summary: 'the peak of the memory that a gradient takes beside what editrl plan says, by the lengths of sequences',
    run: async () => Promise.resolve((await import('./memory.js')).benchMemory()),
  },
  'plan-memory': {
    summary: 'the peak of the memory that runs take beside what editrl plan says; `plan-memory FOLDER` of SmolLM2',
    run: async () => (await import('./plan_memory.js')).benchPlanMemory(),
  },
  'held-forms': {
    summary:
      "how a session may get weights that never change: milliseconds and memory by their form; `held-forms [--python PATH]` with Python's onnx and ml_dtypes",
    run: async () => Promise.resolve((await import('./held_forms.js')).benchHeldForms()),
  },
  'real-sizes': {
    summary: 'what editrl plan says that policies of published sizes take, by the ways that a machine can hold them',
    run: async () => (await import('./real_sizes.js')).benchRealSizes(),
  },
  'judge-texts': {
    summary: 'one million garbled judge texts through the readers of scores: none may throw or give what is not there',
    run: async () => (await import('./fuzz_judge_texts.js')).benchFuzz(),
  },
  judge: {
    summary:
      'what judging costs: the client, the gateway, a burst from several processes, an iteration; `judge faults`: 10,000 judgements while requests fail',
    run: async () => (await import('./judge.js')).benchJudge(),
  },
  exam: {
    summary:
      'the CPU that an exam of a judge takes for a question, beyond sending it: in the tiny world, or with pictures of `exam SIDE` pixels a side',
    run: async () => (await import('./exam.js')).benchExam(),
  },
  attack: {
    summary:
      'attacks on the gateway, the reward server and the rule judge: each has to stay up, below 1 GB, and to serve others',
    run: async () => (await import('./attack.js')).benchAttack(),
  },
  smollm2: {
    summary:
      "SmolLM2-135M beside Python's transformers and peft, in turns: sampling, gradients, an optimizer step; `smollm2 --model FOLDER [--python PATH] [--rounds N] [--part NAME]`",
    run: async () => (await import('./smollm2.js')).benchSmolLm2(),
  },
  'enhance-gap': {
    summary:
      'how much of the gap between no rewriting and the labels a run of prompt_enhance has closed: `enhance-gap RUN`',
    run: async () => (await import('./enhance_gap.js')).benchEnhanceGap(),
  },
  dashboard: {
    summary: 'the dashboard before 5,000 runs and a file of 100,000 lines of metrics: lists, curves, the page',
    run: async () => (await import('./dashboard.js')).benchDashboard(),
  },
  tinker: {
    summary:
      'what the client of a training server costs: CPU for a datum, and memory beyond its own arrays for a batch of 5 MB, in both dialects',
    run: async () => (await import('./tinker.js')).benchTinker(),
  },
  'emu3-vision': {
    summary:
      "seconds and memory that Emu3's vision tokenizer takes in its published sizes, for a picture of 512 pixels a side; `emu3-vision SIDE`",
    run: async () => (await import('./emu3_vision.js')).benchEmu3Vision(),
  },
  ocr: {
    summary:
      'reading 200 drawn signs with one worker and with two: start, milliseconds per image, CPU, how many are right',
    run: async () => (await import('./ocr.js')).benchOcr(),
  },
};

const name = process.argv[2] ?? '';
const bench = benches[name];
if (bench === undefined) {
  const lines = Object.entries(benches).map(([key, { summary }]) => `  ${key}: ${summary}`);
  console.error(new UsageError(`npm run bench -- takes one of:\n${lines.join('\n')}`).toText());
  process.exitCode = 2;
} else await bench.run();
