/** From a config's engine section to a session. */
import type { SessionOptions } from './session.js';

/** What a config's engine section says to a session; `threads` takes the place of the section's own unless it is 0. */
export function sessionOptions(
  engine: { readonly provider: string; readonly threads: number; readonly device?: number },
  threads = 0,
): SessionOptions {
  const provider = engine.provider === 'auto' ? 'cpu' : (engine.provider as 'cpu' | 'webgpu' | 'cuda');
  const asked = threads === 0 ? engine.threads : threads;
  const { device } = engine;
  return { provider, ...(device === undefined ? {} : { device }), ...(asked === 0 ? {} : { threads: asked }) };
}
