/** What a run is made with. */
import { createRequire } from 'node:module';

export function versions(): Record<string, string> {
  const require = createRequire(import.meta.url);
  const versionIn = (file: string): string => (require(file) as { version: string }).version;
  return {
    editrl: versionIn('../../../package.json'),
    node: process.version,
    'onnxruntime-node': versionIn('onnxruntime-node/package.json'),
  };
}
