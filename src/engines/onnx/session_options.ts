/** From a config's engine section to a session. */
import type { SessionOptions } from './session.js';

/** Session options from a config's engine section; `threads` replaces the section's own value unless it is 0. */
export function sessionOptions(
  engine: { readonly provider: string; readonly threads: number; readonly device?: number },
  threads = 0,
): SessionOptions {
  const provider = engine.provider === 'auto' ? 'cpu' : (engine.provider as 'cpu' | 'webgpu' | 'cuda');
  const asked = threads === 0 ? engine.threads : threads;
  const { device } = engine;
  return { provider, ...(device === undefined ? {} : { device }), ...(asked === 0 ? {} : { threads: asked }) };
}
