import { expect, it } from 'vitest';
import { RunError } from '../../src/core/errors.js';
import { diskError } from '../../src/core/files.js';
import { limitIn, maxOpenFiles, openFilesAdvice, saysTooManyFiles, tooFewFiles } from '../../src/core/process.js';
import { causeOf } from '../../src/core/http/request.js';
import { packError } from '../../src/launch/worker/protocol.js';

const emfile = (): Error => Object.assign(new Error('EMFILE: too many open files, open x'), { code: 'EMFILE' });

it('the limit is read if the system reports it', () => {
  const limits = 'Limit                     Soft Limit           Hard Limit           Units\n';
  expect(limitIn(`${limits}Max open files            1024                 4096                 files\n`)).toBe(1024);
  expect(limitIn(`${limits}Max open files            unlimited            unlimited            files\n`)).toBeNull();
  expect(limitIn('')).toBeNull();
  if (process.platform === 'linux') expect(maxOpenFiles()).toBeGreaterThan(10);
});

it('too few are named with what to do, before anything fails', () => {
  expect(tooFewFiles('the gateway', 1000, 1000)).toBeNull();
  expect(tooFewFiles('the gateway', 1000, null)).toBeNull();
  expect(tooFewFiles('the gateway', 1000, 256)).toMatch(
    /^the gateway may open 256 files and connections at once, but may need 1000\. .*\(now 256\): `ulimit -Hn 65536; ulimit -n 65536`/,
  );
});

it('what fails for want of them says so, wherever it is in the chain of causes', () => {
  expect(saysTooManyFiles(new RunError('cannot write', { cause: emfile() }))).toBe(true);
  expect(saysTooManyFiles(new Error('EMFILE'))).toBe(false);
  const next = expect.stringContaining(openFilesAdvice()) as string;
  expect(diskError('/x', emfile())).toMatchObject({ message: 'cannot write (EMFILE)', next });
  expect(packError(emfile())).toMatchObject({ name: 'RunError', next });
  expect(packError(new RunError('cannot read', { cause: emfile() }))).toMatchObject({ name: 'RunError', next });
  expect(packError(new RunError('cannot read', { next: 'Wait.', cause: emfile() }))).toMatchObject({ next: 'Wait.' });
  expect(causeOf(new Error('fetch failed', { cause: emfile() }))).toContain(
    'EMFILE: too many open files, open x: too many open files. Let this process open more',
  );
  expect(causeOf(new Error('connect ECONNREFUSED'))).toBe('connect ECONNREFUSED');
});
