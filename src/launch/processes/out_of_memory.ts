/** Detects out-of-memory errors in the output of the programs that are run here, with advice. */

/** Which memory ran out. */
export type MemoryKind = 'heap' | 'gpu' | 'main';

export interface OutOfMemory {
  /** What was found, without naming the process. */
  readonly found: string;
  /** What to do, as one text. */
  readonly next: string;
}

/** Lines that report it, the specific ones first: the last row matches any other out-of-memory message. */
const SIGNS: readonly (readonly [MemoryKind, RegExp])[] = [
  ['heap', /heap out of memory|ERR_WORKER_OUT_OF_MEMORY/],
  [
    'gpu',
    /(CUDA|HIP|XPU)[^:]*(: | )out of memory|CU(BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|OUT_OF_DEVICE_MEMORY/i,
  ],
  [
    'main',
    /out of memory|OutOfMemoryError|\bMemoryError\b|memory exhausted|std::bad_alloc|\bbad allocation\b|Failed to allocate memory|Available memory of \d+ is smaller than requested|DefaultCPUAllocator: (not enough|can't allocate) memory|Cannot allocate memory|\bENOMEM\b|Array buffer allocation failed/i,
  ],
];

const FOUND: Readonly<Record<MemoryKind, string>> = {
  heap: "the heap of Node's V8 was full",
  gpu: "the GPU's memory was full",
  main: 'it ran out of memory',
};

const SMALLER =
  'Make its micro-batches smaller (optimizer.per_device_batch_size, or what your own trainer calls it), switch on optimizer.gradient_checkpointing, or lower policy.model_context_size';
const NEXT: Readonly<Record<MemoryKind, string>> = {
  heap: "Give it a larger heap, as launch.env: {NODE_OPTIONS: '--max-old-space-size=8192'} (MiB), or less to hold at once.",
  gpu: `${SMALLER}; nvidia-smi shows what else is on that GPU.`,
  main: `${SMALLER}; or let fewer processes share the memory (launch.processes, --max-parallel of a sweep), or ask for more (launch.slurm.mem).`,
};

/** What a line of a log, or an error's message, says about memory; null if nothing. */
export function outOfMemoryIn(text: string): MemoryKind | null {
  return SIGNS.find(([, pattern]) => pattern.test(text))?.[0] ?? null;
}

/** Memory that ran out according to a program's output; `line` is quoted. */
export function reportedOutOfMemory(which: MemoryKind, line: string): OutOfMemory {
  return { found: `${FOUND[which]} (${shortened(line)})`, next: NEXT[which] };
}

/** A process that the kernel killed; `limitBytes` is its control group's limit, null if unknown. */
export function killedForMemory(limitBytes: number | null): OutOfMemory {
  const limit = limitBytes === null ? '' : `, limit ${Math.round(limitBytes / 2 ** 20)} MiB`;
  return { found: `the system ran out of memory (the kernel killed a process for it${limit})`, next: NEXT.main };
}

/** The advice for an error whose message says that memory ran out; null for another error. */
export function memoryAdvice(message: string): string | null {
  const which = outOfMemoryIn(message);
  return which === null ? null : NEXT[which];
}

const LONGEST_QUOTE = 160;

function shortened(line: string): string {
  const text = line.trim();
  return text.length > LONGEST_QUOTE ? `${text.slice(0, LONGEST_QUOTE)}…` : text;
}

/** A message about memory counts for this many further lines: trainers survive some of them and continue. */
const HEARD_FOR_LINES = 300;

/** Watches the lines of one process for messages about memory. */
export class MemoryMessages {
  #lines = 0;
  #last: { readonly at: number; readonly which: MemoryKind; readonly line: string } | null = null;

  add(line: string): void {
    this.#lines++;
    const which = outOfMemoryIn(line);
    // One failure prints many lines; the first specific one says most.
    if (which === null || (which === 'main' && this.#recent() !== null)) return;
    this.#last = { at: this.#lines, which, line };
  }

  /** What it has said recently; null if nothing. */
  latest(): OutOfMemory | null {
    const last = this.#recent();
    return last === null ? null : reportedOutOfMemory(last.which, last.line);
  }

  #recent(): { readonly which: MemoryKind; readonly line: string } | null {
    return this.#last !== null && this.#lines - this.#last.at <= HEARD_FOR_LINES ? this.#last : null;
  }
}
