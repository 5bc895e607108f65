/**
 * The temporary folder of one vitest process, below the system's. What tests forget there, or lose when they are killed, goes with it,
 * and so do the traces that onnxruntime leaves in every process.
 */
import { mkdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export const scratch = join(tmpdir(), `editrl-tests-${process.pid}`);

/** Set-up of the projects whose workers have TMPDIR there; what it returns removes the folder. */
export default function setUp(): () => void {
  mkdirSync(scratch, { recursive: true });
  return () => rmSync(scratch, { recursive: true, force: true });
}
