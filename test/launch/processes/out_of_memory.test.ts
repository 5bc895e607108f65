import { describe, expect, it } from 'vitest';
import { memoryAdvice, MemoryMessages, outOfMemoryIn } from '../../../src/launch/processes/failure.js';
import { EngineError } from '../../../src/core/errors.js';
import { packError, unpackError } from '../../../src/launch/worker/protocol.js';

describe('a line', () => {
  it.each([
    ['heap', 'FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory'],
    ['heap', 'Error [ERR_WORKER_OUT_OF_MEMORY]: Worker terminated due to reaching memory limit: JS heap out of memory'],
    [
      'gpu',
      'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB',
    ],
    ['gpu', 'RuntimeError: CUDA error: out of memory'],
    ['gpu', 'CUDA failure 2: out of memory ; GPU=0 ; hostname=a ; expr=cudaMalloc((void**)&p, size);'],
    ['gpu', 'RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`'],
    ['gpu', 'VK_ERROR_OUT_OF_DEVICE_MEMORY'],
    ['main', 'bfc_arena.cc:376 AllocateRawInternal Failed to allocate memory for requested buffer of size 17179869184'],
    ['main', 'Available memory of 1048576 is smaller than requested bytes of 4194304'],
    ['main', 'MemoryError'],
    ['main', "terminate called after throwing an instance of 'std::bad_alloc'"],
    ['main', 'OSError: [Errno 12] Cannot allocate memory'],
    ['main', 'RangeError: Array buffer allocation failed'],
    [
      'main',
      'slurmstepd: error: Detected 1 oom_kill event; some of the step tasks have been OOM Killed: Out Of Memory',
    ],
  ])('says of the %s: %s', (which, line) => {
    expect(outOfMemoryIn(line)).toBe(which);
    expect(memoryAdvice(line)).toMatch(/\.$/);
  });

  it.each([
    'step 3: loss 0.5, 3.2 GiB of memory in use',
    'CUDA error: an illegal memory access was encountered',
    'ValueError: made to crash',
    'InMemoryErrorLog opened',
  ])('reports nothing of it: %s', (line) => {
    expect(outOfMemoryIn(line)).toBeNull();
    expect(memoryAdvice(line)).toBeNull();
  });
});

describe('what a process says', () => {
  it('is the special line, whatever follows it', () => {
    const talk = new MemoryMessages();
    talk.add('torch.OutOfMemoryError: CUDA out of memory.');
    for (let i = 0; i < 100; i++) talk.add(`  File "train.py", line ${i}`);
    talk.add('root cause: OutOfMemoryError, see above');
    expect(talk.latest()?.found).toBe("the GPU's memory was full (torch.OutOfMemoryError: CUDA out of memory.)");
  });

  it('is forgotten once it has gone on', () => {
    const talk = new MemoryMessages();
    expect(talk.latest()).toBeNull();
    talk.add('MemoryError: the batch is halved');
    for (let step = 0; step < 1000; step++) talk.add(`step ${step}`);
    expect(talk.latest()).toBeNull();
  });
});

describe('an error of a worker', () => {
  it('that comes from an allocation says the rank and what to do', () => {
    const error = unpackError(packError(new RangeError('Array buffer allocation failed'), 1));
    expect(error).toBeInstanceOf(EngineError);
    expect((error as EngineError).toText()).toMatch(
      /^rank 1 ran out of memory: Array buffer allocation failed\n {2}Make its micro-batches smaller/,
    );
  });

  it('of another kind stays as it is', () => {
    const error = new EngineError('a NaN in the loss', { next: 'Lower it.' });
    expect(unpackError(packError(error, 1))).toMatchObject({ message: error.message, next: 'Lower it.' });
  });
});
